// Direct convolution, NCHW: a thread computes one pixel of eight output channels.

constexpr int CHANNELS = 8;

// x[n][groups c][h][w]; weight[groups][c][r][s][k], k rounded up to CHANNELS; y[n][groups k][p][q].
// c and k are channels of one group. The grid's x runs over pixels, y over groups and their
// channels, z over n.
extern "C" __global__ void convolve(const float* x, const float* weight, float* y, int c, int h,
                                    int w, int k, int r, int s, int p, int q, int stride,
                                    int padding, int dilation, int groups) {
    const int pixel = blockIdx.x * blockDim.x + threadIdx.x;
    const int blocks_of_channels = (k + CHANNELS - 1) / CHANNELS;
    const int group = blockIdx.y / blocks_of_channels;
    const int first_channel = blockIdx.y % blocks_of_channels * CHANNELS;
    if (pixel >= p * q) return;
    const int top = pixel / q * stride - padding, left = pixel % q * stride - padding;
    const float* image = x + ((size_t)blockIdx.z * groups + group) * c * h * w;
    const float* filter =
        weight + (size_t)group * c * r * s * blocks_of_channels * CHANNELS + first_channel;

    float sums[CHANNELS] = {};
    for (int channel = 0; channel < c; ++channel) {
        for (int tap_row = 0; tap_row < r; ++tap_row) {
            const int row = top + tap_row * dilation;
            for (int tap_column = 0; tap_column < s; ++tap_column) {
                const int column = left + tap_column * dilation;
                const bool inside = row >= 0 && row < h && column >= 0 && column < w;
                const float value = inside ? image[(size_t)channel * h * w + row * w + column] : 0;
                // The same for all threads of a block: two 16-byte broadcasts.
                float factors[CHANNELS];
#pragma unroll
                for (int i = 0; i < CHANNELS; i += 4) {
                    *reinterpret_cast<float4*>(factors + i) =
                        __ldg(reinterpret_cast<const float4*>(filter + i));
                }
#pragma unroll
                for (int i = 0; i < CHANNELS; ++i) sums[i] += value * factors[i];
                filter += blocks_of_channels * CHANNELS;
            }
        }
    }
#pragma unroll
    for (int i = 0; i < CHANNELS; ++i) {
        const int channel = first_channel + i;
        if (channel < k) {
            y[(((size_t)blockIdx.z * groups + group) * k + channel) * p * q + pixel] = sums[i];
        }
    }
}
