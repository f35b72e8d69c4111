// Layer (LAYER = 1) and RMS normalisation: a block holds a row in registers, THREADS x ITEMS
// vectors. `bias` is not read for RMS.

extern "C" __global__ void __launch_bounds__(THREADS) normalise(
    const ELEMENT* input, const ELEMENT* weight, const ELEMENT* bias, ELEMENT* output, int columns,
    float epsilon) {
    const long long row = static_cast<long long>(blockIdx.x) * columns;
    float values[ITEMS][VECTOR];
    float total = 0.0f;
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        const int column = (item * THREADS + threadIdx.x) * VECTOR;
        if (column >= columns) continue;
        const Vector x = load(input + row + column);
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) {
            values[item][i] = float(x.at[i]);
            total += values[item][i];
        }
    }
    const float mean = LAYER ? reduce_block<Add>(total) / columns : 0.0f;
    float squares = 0.0f;
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        if ((item * THREADS + threadIdx.x) * VECTOR >= columns) continue;
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) {
            values[item][i] -= mean;
            squares += values[item][i] * values[item][i];
        }
    }
    const float scale = rsqrtf(reduce_block<Add>(squares) / columns + epsilon);
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        const int column = (item * THREADS + threadIdx.x) * VECTOR;
        if (column >= columns) continue;
        const Vector w = load(weight + column);
        Vector y, b;
        if (LAYER) b = load(bias + column);
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) {
            const float normal = values[item][i] * scale * float(w.at[i]);
            y.at[i] = ELEMENT(LAYER ? normal + float(b.at[i]) : normal);
        }
        store(output + row + column, y);
    }
}
