// 16-byte vectors of ELEMENT (float, __half or __nv_bfloat16), and reductions over a block.
// VECTOR elements move at once: 16 bytes, or one element where a row does not start on 16 bytes.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

struct alignas(sizeof(ELEMENT) * VECTOR) Vector {
    ELEMENT at[VECTOR];
};

__device__ inline Vector load(const ELEMENT* from) {
    return *reinterpret_cast<const Vector*>(from);
}

__device__ inline void store(ELEMENT* to, const Vector& vector) {
    *reinterpret_cast<Vector*>(to) = vector;
}

// The largest of `at`, two of 16 bits in one instruction.
template <typename T>
struct PairOf;
template <>
struct PairOf<__half> {
    using type = __half2;
};
template <>
struct PairOf<__nv_bfloat16> {
    using type = __nv_bfloat162;
};

template <typename T, int COUNT>
__device__ inline float largest(const T (&at)[COUNT]) {
    if constexpr (sizeof(T) == 2 && COUNT % 2 == 0) {
        using Pair = typename PairOf<T>::type;
        const Pair* const pairs = reinterpret_cast<const Pair*>(at);
        Pair most = pairs[0];
#pragma unroll
        for (int i = 1; i < COUNT / 2; ++i) most = __hmax2(most, pairs[i]);
        return fmaxf(float(most.x), float(most.y));
    } else {
        float most = float(at[0]);
#pragma unroll
        for (int i = 1; i < COUNT; ++i) most = fmaxf(most, float(at[i]));
        return most;
    }
}

// Asks for the row that the block `ahead` of this one will read, so that memory brings rows in their
// order, each as a whole, whatever the blocks wait for.
__device__ inline void prefetch_row(const ELEMENT* input, int columns, int ahead) {
#if __CUDA_ARCH__ >= 900
    if (VECTOR == 1 || threadIdx.x != 0 || blockIdx.x + ahead >= gridDim.x) return;
    const ELEMENT* const row = input + static_cast<long long>(blockIdx.x + ahead) * columns;
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(row),
                 "r"(columns * int(sizeof(ELEMENT))));
#endif
}

// Where a row is held packed and used again, it is converted again: the compiler would keep both.
template <int COUNT>
__device__ __forceinline__ void forget_conversions(Vector (&held)[COUNT]) {
    if (sizeof(Vector) % sizeof(unsigned) != 0) return;
#pragma unroll
    for (int item = 0; item < COUNT; ++item) {
        unsigned* const words = reinterpret_cast<unsigned*>(&held[item]);
#pragma unroll
        for (int i = 0; i < int(sizeof(Vector) / sizeof(unsigned)); ++i) {
            asm volatile("" : "+r"(words[i]));
        }
    }
}

struct Add {
    static __device__ float identity() { return 0.0f; }
    static __device__ float apply(float a, float b) { return a + b; }
};

struct Maximum {
    static __device__ float identity() { return -__int_as_float(0x7f800000); }
    static __device__ float apply(float a, float b) { return fmaxf(a, b); }
};

template <typename Operation>
__device__ float reduce_warp(float value) {
    for (int distance = 16; distance > 0; distance /= 2)
        value = Operation::apply(value, __shfl_xor_sync(0xffffffff, value, distance));
    return value;
}

// The reduction of every thread's `value`, in every thread. Whole warps only.
template <typename Operation>
__device__ float reduce_block(float value) {
    __shared__ float of_warp[32];
    const int lane = threadIdx.x % 32;
    value = reduce_warp<Operation>(value);
    // What an earlier reduction left is read by all before it is overwritten.
    __syncthreads();
    if (lane == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    // Every warp reduces what all left: cheaper than a third barrier.
    return reduce_warp<Operation>(lane < blockDim.x / 32 ? of_warp[lane] : Operation::identity());
}
