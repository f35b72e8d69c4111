// Copy and triad: a thread moves one vector of each array.

__device__ long long own_index() {
    return blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
}

extern "C" __global__ void copy(const ELEMENT* a, ELEMENT* output, long long count) {
    long long first = own_index() * VECTOR;
    if (first + VECTOR <= count) {
        store(output + first, load(a + first));
    } else {
        for (; first < count; ++first) output[first] = a[first];
    }
}

extern "C" __global__ void triad(
    const ELEMENT* a, const ELEMENT* b, ELEMENT* output, long long count, float scale) {
    long long first = own_index() * VECTOR;
    if (first + VECTOR <= count) {
        const Vector x = load(a + first), y = load(b + first);
        Vector z;
        for (int i = 0; i < VECTOR; ++i)
            z.at[i] = ELEMENT(fmaf(scale, float(y.at[i]), float(x.at[i])));
        store(output + first, z);
    } else {
        for (; first < count; ++first)
            output[first] = ELEMENT(fmaf(scale, float(b[first]), float(a[first])));
    }
}
