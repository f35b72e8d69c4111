// Kernels for what no library call isolates: vector units, the caches, and shared memory.
//
// Loads are written as volatile assembly, so that the compiler neither merges nor moves them, and
// each kernel's result depends on all of them, so that none is dropped.

constexpr int CHAINS = 8;
constexpr int UNROLLED = 32;

// Independent chains of fused multiply-adds: 2 * CHAINS * UNROLLED * rounds FLOPs a thread.
template <typename T>
__device__ void fused_multiply_adds(const T* factors, T* out, int rounds) {
    const T a = factors[0];
    const T b = factors[1];
    T sums[CHAINS];
    for (int c = 0; c < CHAINS; ++c) sums[c] = factors[(threadIdx.x + c) % 256];
    for (int round = 0; round < rounds; ++round) {
#pragma unroll
        for (int i = 0; i < UNROLLED; ++i) {
#pragma unroll
            for (int c = 0; c < CHAINS; ++c) sums[c] = sums[c] * a + b;
        }
    }
    T sum = 0;
    for (int c = 0; c < CHAINS; ++c) sum += sums[c];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(1024, 2)
    fused_multiply_adds_fp32(const float* factors, float* out, int rounds) {
    fused_multiply_adds(factors, out, rounds);
}

extern "C" __global__ void __launch_bounds__(1024, 2)
    fused_multiply_adds_fp64(const double* factors, double* out, int rounds) {
    fused_multiply_adds(factors, out, rounds);
}

// Every thread reads `rounds` x 4 x 16 bytes of `data`, 2^k vectors: past the L1 cache (.cg), or
// through it (.ca).
template <bool PAST_L1>
__device__ void read_global(const float4* data, float* out, int vectors, int rounds) {
    const int stride = gridDim.x * blockDim.x;
    int position = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    for (int round = 0; round < rounds; ++round) {
        float4 loaded[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float4* source = data + (position & (vectors - 1));
            if constexpr (PAST_L1) {
                asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
                             : "=f"(loaded[i].x), "=f"(loaded[i].y), "=f"(loaded[i].z),
                               "=f"(loaded[i].w)
                             : "l"(source));
            } else {
                asm volatile("ld.global.ca.v4.f32 {%0, %1, %2, %3}, [%4];"
                             : "=f"(loaded[i].x), "=f"(loaded[i].y), "=f"(loaded[i].z),
                               "=f"(loaded[i].w)
                             : "l"(source));
            }
            position += stride;
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            sum += (loaded[i].x + loaded[i].y) + (loaded[i].z + loaded[i].w);
        }
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(1024, 2)
    read_l2(const float4* data, float* out, int vectors, int rounds) {
    read_global<true>(data, out, vectors, rounds);
}

extern "C" __global__ void __launch_bounds__(1024, 2)
    read_l1(const float4* data, float* out, int vectors, int rounds) {
    read_global<false>(data, out, vectors, rounds);
}

constexpr int SHARED_VECTORS = 2048;

// Every thread reads `rounds` x 4 x 16 bytes of its block's 32 KiB, without bank conflicts.
extern "C" __global__ void __launch_bounds__(1024, 2)
    read_shared(const float4* data, float* out, int rounds) {
    __shared__ float4 block[SHARED_VECTORS];
    for (int i = threadIdx.x; i < SHARED_VECTORS; i += blockDim.x) block[i] = data[i];
    __syncthreads();
    const unsigned base = (unsigned)__cvta_generic_to_shared(block);
    unsigned position = threadIdx.x;
    float sum = 0.0f;
    for (int round = 0; round < rounds; ++round) {
        float4 loaded[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const unsigned source = base + 16 * ((position + 128 * i) & (SHARED_VECTORS - 1));
            asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                         : "=f"(loaded[i].x), "=f"(loaded[i].y), "=f"(loaded[i].z),
                           "=f"(loaded[i].w)
                         : "r"(source));
        }
        position += 32;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            sum += (loaded[i].x + loaded[i].y) + (loaded[i].z + loaded[i].w);
        }
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

extern "C" __global__ void nothing() {}
