// Layer (LAYER = 1) and RMS normalisation: a block holds a row in registers, THREADS x ITEMS
// vectors, as it came: see softmax/cuda.cu. `bias` is not read for RMS.

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) normalise(
    const ELEMENT* input, const ELEMENT* weight, const ELEMENT* bias, ELEMENT* output, int columns,
    float epsilon, int ahead) {
    prefetch_row(input, columns, ahead);
    const long long row = static_cast<long long>(blockIdx.x) * columns;
    Vector held[ITEMS];
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        const int column = (item * THREADS + threadIdx.x) * VECTOR;
        if (column < columns) held[item] = load(input + row + column);
    }
    float mean = 0.0f;
    if (LAYER) {
        float total = 0.0f;
#pragma unroll
        for (int item = 0; item < ITEMS; ++item) {
            if ((item * THREADS + threadIdx.x) * VECTOR >= columns) continue;
#pragma unroll
            for (int i = 0; i < VECTOR; ++i) total += float(held[item].at[i]);
        }
        mean = reduce_block<Add>(total) / columns;
        forget_conversions(held);
    }
    float squares = 0.0f;
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        if ((item * THREADS + threadIdx.x) * VECTOR >= columns) continue;
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) {
            const float rest = float(held[item].at[i]) - mean;
            squares += rest * rest;
        }
    }
    const float scale = rsqrtf(reduce_block<Add>(squares) / columns + epsilon);
    const float shift = -mean * scale;
    forget_conversions(held);
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        const int column = (item * THREADS + threadIdx.x) * VECTOR;
        if (column >= columns) continue;
        const Vector w = load(weight + column);
        Vector y, b;
        if (LAYER) b = load(bias + column);
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) {
            const float normal = fmaf(float(held[item].at[i]), scale, shift);
            y.at[i] = ELEMENT(fmaf(normal, float(w.at[i]), LAYER ? float(b.at[i]) : 0.0f));
        }
        store(output + row + column, y);
    }
}
