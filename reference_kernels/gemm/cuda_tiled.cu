// One thread still computes one element of C; a block loads the operands once for all its threads.

constexpr int TILE = 32;

extern "C" __global__ __launch_bounds__(TILE* TILE) void gemm(const float* a, const float* b,
                                                              float* c, int m, int n, int k) {
    __shared__ float a_tile[TILE][TILE];
    __shared__ float b_tile[TILE][TILE];
    const int x = threadIdx.x, y = threadIdx.y;
    const int column = blockIdx.x * TILE + x;
    const int row = blockIdx.y * TILE + y;
    float sum = 0.0f;
    for (int start = 0; start < k; start += TILE) {
        // Past an edge, zeros: they add nothing.
        a_tile[y][x] = row < m && start + x < k ? a[(size_t)row * k + start + x] : 0.0f;
        b_tile[y][x] = start + y < k && column < n ? b[(size_t)(start + y) * n + column] : 0.0f;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; ++i) sum += a_tile[y][i] * b_tile[i][x];
        // No thread may overwrite a tile that another still reads.
        __syncthreads();
    }
    if (row < m && column < n) c[(size_t)row * n + column] = sum;
}
