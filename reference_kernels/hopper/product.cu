// A persistent product: one warpgroup brings tiles by TMA, two multiply by wgmma, 64 rows each, and
// two blocks of a cluster share the tiles of B. Defined before this source, beside common.cu's:
// B_ALONG_K 1 where B is stored as [N, K]; WINDOWS 1 where A is an NHWC image of which TMA takes
// windows (rows are pixels of the output, K is tap by tap the channels); TILE_N 64, 128 or 256;
// CLUSTER 1 or 2; STAGES; GROUP_TILES. C has 16 bits.

constexpr int TILE_M = 128;
constexpr int TILE_K = ROW_BYTES / (FP8 ? 1 : 2);
constexpr int A_BYTES = TILE_M * ROW_BYTES, B_BYTES = TILE_N * ROW_BYTES;
// Row-major B lies in blocks of 64 columns, each with its TILE_K rows.
constexpr int B_BLOCK_BYTES = TILE_K * ROW_BYTES;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int SUMS = TILE_N / 2;
// C leaves 64 columns at a time, which are a row's 128 bytes.
constexpr int C_BLOCK_BYTES = 64 * ROW_BYTES, C_BLOCKS = 2;

#if WINDOWS
__device__ __forceinline__ void load_windows(unsigned to, const void* map, Barrier& barrier,
                                             int channel, int left, int top, int image, int across,
                                             int down) {
    asm volatile(
        "cp.async.bulk.tensor.4d.im2col.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8};" ::"r"(to),
        "l"(map), "r"(channel), "r"(left), "r"(top), "r"(image), "r"(shared_address(&barrier)),
        "h"((unsigned short)across), "h"((unsigned short)down)
        : "memory");
}
#endif

__device__ __forceinline__ void load_b(unsigned to, const void* map, Barrier& barrier, int inner,
                                       int outer) {
#if CLUSTER == 2
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
        "l"(map), "r"(inner), "r"(outer), "r"(shared_address(&barrier)), "h"((unsigned short)3)
        : "memory");
#else
    load(to, map, barrier, inner, outer);
#endif
}

__device__ __forceinline__ void synchronise_cluster() {
#if CLUSTER == 2
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
#else
    __syncthreads();
#endif
}

struct Place {
    int row, column;
};

// Tiles of a cluster's rows: down columns of GROUP_TILES, so that what runs at one time is compact.
__device__ __forceinline__ Place place_of(int index, int rows, int columns) {
    const int in_band = GROUP_TILES * columns;
    const int band = index / in_band, first = band * GROUP_TILES;
    const int height = min(rows - first, GROUP_TILES);
    const int rest = index - band * in_band;
    return {first + rest % height, rest / height};
}

extern "C" __global__ __launch_bounds__(3 * WARPGROUP, 1) void product(const void* a_map,
                                                                       const void* b_map,
                                                                       const void* c_map, int m,
                                                                       int n, int k
#if WINDOWS
                                                                       ,
                                                                       int channels, int height,
                                                                       int width, int filter_width,
                                                                       int stride, int padding,
                                                                       int dilation
#endif
) {
    extern __shared__ unsigned char dynamic[];
    unsigned char* const tiles = aligned(dynamic);
    unsigned char* const staging = tiles + STAGES * STAGE_BYTES;
    __shared__ Barrier full[STAGES], empty[STAGES];
    const int thread = threadIdx.x, warpgroup = thread / WARPGROUP;
    int block = 0;
    if (CLUSTER == 2) asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(block));

    if (thread == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            initialise(full[stage], 1);
            initialise(empty[stage], 2 * CLUSTER);
        }
        publish_barriers();
    }
    synchronise_cluster();

    const int rows = (m + TILE_M * CLUSTER - 1) / (TILE_M * CLUSTER);
    const int columns = (n + TILE_N - 1) / TILE_N;
    const int steps = (k + TILE_K - 1) / TILE_K;
    const int clusters = gridDim.x / CLUSTER;
    int stage = 0, parity = 0;

    if (warpgroup == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (thread == 0) {
            for (int index = blockIdx.x / CLUSTER; index < rows * columns; index += clusters) {
                const Place place = place_of(index, rows, columns);
                const int row = (place.row * CLUSTER + block) * TILE_M;
                const int column = place.column * TILE_N;
#if WINDOWS
                const int image = row / (height * width);
                const int pixel = row - image * height * width;
                const int top = pixel / width * stride - padding;
                const int left = pixel % width * stride - padding;
                int channel = 0, across = 0, down = 0;
#endif
                for (int step = 0; step < steps; ++step) {
                    const unsigned to = shared_address(tiles + stage * STAGE_BYTES);
                    wait(empty[stage], parity ^ 1);
                    expect_bytes(full[stage], STAGE_BYTES);
#if WINDOWS
                    load_windows(to, a_map, full[stage], channel, left, top, image,
                                 across * dilation, down * dilation);
                    channel += TILE_K;
                    if (channel >= channels) {
                        channel = 0;
                        if (++across == filter_width) across = 0, ++down;
                    }
#else
                    load(to, a_map, full[stage], step * TILE_K, row);
#endif
                    // Each block of the cluster brings its share of B for both.
                    constexpr int SHARE = TILE_N / CLUSTER;
                    const unsigned b_to = to + A_BYTES + block * (B_BYTES / CLUSTER);
                    const int from = column + block * SHARE;
#if B_ALONG_K
                    load_b(b_to, b_map, full[stage], step * TILE_K, from);
#else
#pragma unroll
                    for (int part = 0; part < SHARE / 64; ++part) {
                        load_b(b_to + part * B_BLOCK_BYTES, b_map, full[stage], from + part * 64,
                               step * TILE_K);
                    }
#endif
                    if (++stage == STAGES) stage = 0, parity ^= 1;
                }
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const int half = warpgroup - 1, in_group = thread % WARPGROUP;
        const int lane = thread % 32, warp = in_group / 32;
        // One thread tells each block of the cluster that a stage is free.
        const bool tells = in_group < CLUSTER;
        const unsigned own_staging = shared_address(staging) + half * C_BLOCKS * C_BLOCK_BYTES;
        const int stored_row = warp * 16 + lane / 8 % 2 * 8 + lane % 8;
        const unsigned stored_at = own_staging + stored_row * ROW_BYTES;
        const int stored_block = lane / 16;
        float sums[SUMS];
        for (int index = blockIdx.x / CLUSTER; index < rows * columns; index += clusters) {
            const Place place = place_of(index, rows, columns);
            int last = 0;
            for (int step = 0; step < steps; ++step) {
                const unsigned at = shared_address(tiles + stage * STAGE_BYTES);
                const unsigned a_at = at + half * 64 * ROW_BYTES, b_at = at + A_BYTES;
                wait(full[stage], parity);
                begin_products();
#pragma unroll
                for (int part = 0; part < 4; ++part) {
#if B_ALONG_K
                    const unsigned long long b = descriptor(b_at + part * 32);
#else
                    const unsigned long long b =
                        descriptor(b_at + part * 2 * EIGHT_ROWS_BYTES, B_BLOCK_BYTES);
#endif
                    multiply<0, !B_ALONG_K>(sums, descriptor(a_at + part * 32), b, step + part);
                }
                commit_products();
                // The products of the step before are done, and its stage is free.
                wait_for_products<1>();
                if (step > 0 && tells) arrive_at(empty[last], in_group);
                last = stage;
                if (++stage == STAGES) stage = 0, parity ^= 1;
            }
            wait_for_products<0>();
            are_done(sums);
            if (tells) arrive_at(empty[last], in_group);

            const int row = (place.row * CLUSTER + block) * TILE_M + half * 64;
#pragma unroll
            for (int round = 0; round < TILE_N / 64; ++round) {
                const unsigned slot = round % C_BLOCKS * C_BLOCK_BYTES;
                // What was in this slot has left.
                if (in_group == 0) wait_for_stores<C_BLOCKS - 1>();
                synchronise(1 + half, WARPGROUP);
#pragma unroll
                for (int pair = 0; pair < 4; ++pair) {
                    const float* const x = sums + (round * 8 + pair * 2) * 4;
                    const unsigned chunk = pair * 2 + stored_block;
                    store_blocks(stored_at + slot + (chunk ^ stored_row % 8) * 16,
                                 pack(x[0], x[1]), pack(x[2], x[3]), pack(x[4], x[5]),
                                 pack(x[6], x[7]));
                }
                publish_shared();
                synchronise(1 + half, WARPGROUP);
                if (in_group == 0) {
                    store(c_map, own_staging + slot, place.column * TILE_N + round * 64, row);
                    commit_stores();
                }
            }
        }
        // Shared memory must live until the last block of C has been read.
        if (in_group == 0) wait_for_stores<0>();
    }
    // A block that ends takes its shared memory along, at which the other may still arrive.
    if (CLUSTER == 2) synchronise_cluster();
}
