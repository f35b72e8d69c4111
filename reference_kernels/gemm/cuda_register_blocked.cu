// A thread computes 8 x 8 elements of C, a block of 256 threads 128 x 128.

constexpr int TILE = 128;
constexpr int DEPTH = 8;
// A row of the transposed tile of A, padded by one 16-byte access: the eight values of a row of A
// then go to eight different groups of banks.
constexpr int A_PITCH = TILE + 4;
constexpr int LOADS = TILE * DEPTH / 256;

extern "C" __global__ __launch_bounds__(256, 2) void gemm(const float* a, const float* b, float* c,
                                                       int m, int n, int k) {
    // Two of each: one is filled while the other is used.
    __shared__ __align__(16) float a_tiles[2][DEPTH][A_PITCH];
    __shared__ __align__(16) float b_tiles[2][DEPTH][TILE];
    const int thread = threadIdx.x;
    const int first_row = blockIdx.y * TILE, first_column = blockIdx.x * TILE;
    // What this thread loads: of A, eight neighbours of a row by eight threads; of B, a row by 128.
    const int a_depth = thread % DEPTH, a_row = thread / DEPTH;
    const int b_column = thread % TILE, b_depth = thread / TILE;
    // What it computes: rows and columns 4 i.. and 64 + 4 i.., so that a warp's 16-byte reads of
    // shared memory lie side by side.
    const int thread_row = thread / 16 * 4, thread_column = thread % 16 * 4;

    float a_next[LOADS], b_next[LOADS];
    auto load = [&](int start) {
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            const int row = first_row + a_row + i * (256 / DEPTH), depth = start + a_depth;
            a_next[i] = row < m && depth < k ? a[(size_t)row * k + depth] : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            const int depth = start + b_depth + i * (256 / TILE), column = first_column + b_column;
            b_next[i] = depth < k && column < n ? b[(size_t)depth * n + column] : 0.0f;
        }
    };
    auto store = [&](int buffer) {
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            a_tiles[buffer][a_depth][a_row + i * (256 / DEPTH)] = a_next[i];
            b_tiles[buffer][b_depth + i * (256 / TILE)][b_column] = b_next[i];
        }
    };

    float sums[8][8] = {};
    load(0);
    store(0);
    __syncthreads();
    for (int start = 0, buffer = 0; start < k; start += DEPTH, buffer ^= 1) {
        const bool more = start + DEPTH < k;
        if (more) load(start + DEPTH);
#pragma unroll
        for (int depth = 0; depth < DEPTH; ++depth) {
            float rows[8], columns[8];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float* a_at = &a_tiles[buffer][depth][thread_row + half * 64];
                const float* b_at = &b_tiles[buffer][depth][thread_column + half * 64];
                *reinterpret_cast<float4*>(rows + half * 4) = *reinterpret_cast<const float4*>(a_at);
                *reinterpret_cast<float4*>(columns + half * 4) =
                    *reinterpret_cast<const float4*>(b_at);
            }
#pragma unroll
            for (int i = 0; i < 8; ++i) {
#pragma unroll
                for (int j = 0; j < 8; ++j) sums[i][j] += rows[i] * columns[j];
            }
        }
        if (more) store(buffer ^ 1);
        __syncthreads();
    }

#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const int row = first_row + thread_row + i % 4 + i / 4 * 64;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            const int column = first_column + thread_column + j % 4 + j / 4 * 64;
            if (row < m && column < n) c[(size_t)row * n + column] = sums[i][j];
        }
    }
}
