// Elementwise operations: a thread moves one vector of each operand and computes in float32.

__device__ float gelu_of(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f)); }

__device__ float swiglu_of(float gate, float up) { return gate / (1.0f + __expf(-gate)) * up; }

__device__ long long own_index() { return blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x; }

extern "C" __global__ void gelu(const ELEMENT* input, ELEMENT* output, long long count) {
    long long first = own_index() * VECTOR;
    if (first + VECTOR <= count) {
        const Vector x = load(input + first);
        Vector y;
        for (int i = 0; i < VECTOR; ++i) y.at[i] = ELEMENT(gelu_of(float(x.at[i])));
        store(output + first, y);
    } else {
        for (; first < count; ++first) output[first] = ELEMENT(gelu_of(float(input[first])));
    }
}

extern "C" __global__ void swiglu(
    const ELEMENT* gate, const ELEMENT* up, ELEMENT* output, long long count) {
    long long first = own_index() * VECTOR;
    if (first + VECTOR <= count) {
        const Vector g = load(gate + first), u = load(up + first);
        Vector y;
        for (int i = 0; i < VECTOR; ++i)
            y.at[i] = ELEMENT(swiglu_of(float(g.at[i]), float(u.at[i])));
        store(output + first, y);
    } else {
        for (; first < count; ++first)
            output[first] = ELEMENT(swiglu_of(float(gate[first]), float(up[first])));
    }
}

// `pairs` = B * S * H * half rotations; VECTOR divides half, so that no vector leaves its head.
extern "C" __global__ void rotary(
    const ELEMENT* input, const float* cosine, const float* sine, ELEMENT* output, long long pairs,
    int length, int heads, int half) {
    const long long first = own_index() * VECTOR;
    if (first >= pairs) return;
    const long long row = first / half;
    const int pair = first % half;
    const int angle = static_cast<int>(row / heads % length) * half + pair;
    const long long place = row * 2 * half + pair;
    const Vector a = load(input + place), b = load(input + place + half);
    Vector turned_a, turned_b;
    for (int i = 0; i < VECTOR; ++i) {
        const float c = cosine[angle + i], s = sine[angle + i];
        turned_a.at[i] = ELEMENT(float(a.at[i]) * c - float(b.at[i]) * s);
        turned_b.at[i] = ELEMENT(float(b.at[i]) * c + float(a.at[i]) * s);
    }
    store(output + place, turned_a);
    store(output + place + half, turned_b);
}
