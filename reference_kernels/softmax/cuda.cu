// Softmax: a block holds a row in registers, THREADS x ITEMS vectors, as it came: in 16 bits that is
// half of what float32 would take, and so many more rows are under way. BLOCKS: of a multiprocessor,
// at least.

__device__ inline float power_of_two(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

// The logarithm to base 2 of exp(x - maximum) / 2^rest. In 16 bits as one multiply-add, whose
// difference of large numbers costs less than rounding the result.
__device__ inline float exponent(float x, float maximum, float rest) {
    constexpr float LOG2_E = 1.4426950408889634f;
    return sizeof(ELEMENT) == 2 ? fmaf(x, LOG2_E, -fmaf(maximum, LOG2_E, rest))
                                : fmaf(x - maximum, LOG2_E, -rest);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    softmax(const ELEMENT* input, ELEMENT* output, int columns, int ahead) {
    prefetch_row(input, columns, ahead);
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
        maximum = fmaxf(maximum, largest(held[item].at));
    }
    maximum = reduce_block<Maximum>(maximum);
    forget_conversions(held);
    float total = 0.0f;
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        if ((item * THREADS + threadIdx.x) * VECTOR >= columns) continue;
#pragma unroll
        for (int i = 0; i < VECTOR; ++i)
            total += power_of_two(exponent(float(held[item].at[i]), maximum, 0.0f));
    }
    // Taken off the exponent, it divides: no product is needed.
    const float divisor = __log2f(reduce_block<Add>(total));
    forget_conversions(held);
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        const int column = (item * THREADS + threadIdx.x) * VECTOR;
        if (column >= columns) continue;
        Vector y;
#pragma unroll
        for (int i = 0; i < VECTOR; ++i)
            y.at[i] = ELEMENT(power_of_two(exponent(float(held[item].at[i]), maximum, divisor)));
        store(output + row + column, y);
    }
}
