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

struct Add {
    static __device__ float apply(float a, float b) { return a + b; }
};

struct Maximum {
    static __device__ float apply(float a, float b) { return fmaxf(a, b); }
};

// The reduction of every thread's `value`, in every thread. Whole warps only.
template <typename Operation>
__device__ float reduce_block(float value) {
    __shared__ float of_warp[32];
    for (int distance = 16; distance > 0; distance /= 2)
        value = Operation::apply(value, __shfl_xor_sync(0xffffffff, value, distance));
    const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
    // What an earlier reduction left is read by all before it is overwritten.
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warp[warp] = value;
    __syncthreads();
    float result = of_warp[0];
    for (int other = 1; other < warps; ++other) result = Operation::apply(result, of_warp[other]);
    return result;
}
