// Softmax: a block holds a row in registers, THREADS x ITEMS vectors, as it came: in 16 bits that is
// half of what float32 would take, and so many more rows are under way. BLOCKS: of a multiprocessor,
// at least.

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    softmax(const ELEMENT* input, ELEMENT* output, int columns) {
    const long long row = static_cast<long long>(blockIdx.x) * columns;
    Vector held[ITEMS];
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        const int column = (item * THREADS + threadIdx.x) * VECTOR;
        if (column < columns) held[item] = load(input + row + column);
    }
    float maximum = -__int_as_float(0x7f800000);
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        if ((item * THREADS + threadIdx.x) * VECTOR >= columns) continue;
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) maximum = fmaxf(maximum, float(held[item].at[i]));
    }
    maximum = reduce_block<Maximum>(maximum);
    forget_conversions(held);
    float total = 0.0f;
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        if ((item * THREADS + threadIdx.x) * VECTOR >= columns) continue;
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) total += __expf(float(held[item].at[i]) - maximum);
    }
    const float scale = 1.0f / reduce_block<Add>(total);
    forget_conversions(held);
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        const int column = (item * THREADS + threadIdx.x) * VECTOR;
        if (column >= columns) continue;
        Vector y;
#pragma unroll
        for (int i = 0; i < VECTOR; ++i)
            y.at[i] = ELEMENT(__expf(float(held[item].at[i]) - maximum) * scale);
        store(output + row + column, y);
    }
}
