// One thread computes one element of C = A B, straight from the definition.

extern "C" __global__ void gemm(const float* a, const float* b, float* c, int m, int n, int k) {
    // Neighbouring threads own neighbouring columns: their reads of B and writes of C coalesce.
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    float sum = 0.0f;
    for (int i = 0; i < k; ++i) {
        sum += a[(size_t)row * k + i] * b[(size_t)i * n + column];
    }
    c[(size_t)row * n + column] = sum;
}
