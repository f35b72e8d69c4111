// Softmax: a block holds a row in registers, THREADS x ITEMS vectors.

extern "C" __global__ void __launch_bounds__(THREADS)
    softmax(const ELEMENT* input, ELEMENT* output, int columns) {
    const long long row = static_cast<long long>(blockIdx.x) * columns;
    float values[ITEMS][VECTOR];
    float maximum = -__int_as_float(0x7f800000);
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        const int column = (item * THREADS + threadIdx.x) * VECTOR;
        if (column >= columns) continue;
        const Vector x = load(input + row + column);
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) {
            values[item][i] = float(x.at[i]);
            maximum = fmaxf(maximum, values[item][i]);
        }
    }
    maximum = reduce_block<Maximum>(maximum);
    float total = 0.0f;
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        if ((item * THREADS + threadIdx.x) * VECTOR >= columns) continue;
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) {
            values[item][i] = __expf(values[item][i] - maximum);
            total += values[item][i];
        }
    }
    const float scale = 1.0f / reduce_block<Add>(total);
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        const int column = (item * THREADS + threadIdx.x) * VECTOR;
        if (column >= columns) continue;
        Vector y;
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) y.at[i] = ELEMENT(values[item][i] * scale);
        store(output + row + column, y);
    }
}
