// Tensor cores by mma.sync: a block of 8 warps computes 128 x 256 elements of C, a warp 64 x 64.
// BF16 (1 or 0) says what the 16-bit operands are.

#if BF16
#define MULTIPLY "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
#define PACK "cvt.rn.bf16x2.f32 "
#else
#define MULTIPLY "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
#define PACK "cvt.rn.f16x2.f32 "
#endif

using Element = unsigned short;

constexpr int THREADS = 256;
constexpr int TILE_M = 128, TILE_N = 256, TILE_K = 64;
constexpr int STAGES = 3;
// One mma.sync is 16 deep.
constexpr int STEPS = TILE_K / 16;
constexpr int WARPS_N = TILE_N / 64;
// 16 bytes: what cp.async copies and what a row of an 8 x 8 matrix holds.
constexpr int CHUNK = 8;
constexpr int A_CHUNKS = TILE_K / CHUNK, B_CHUNKS = TILE_N / CHUNK;
constexpr int A_BYTES = TILE_M * TILE_K * 2, B_BYTES = TILE_K * TILE_N * 2;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
// Rows that the block copies at a time.
constexpr int A_ROWS = THREADS / A_CHUNKS, B_ROWS = THREADS / B_CHUNKS;
// Blocks are numbered down columns of this many tiles, so that those running at one time share
// rows of A and columns of B in the L2.
constexpr int GROUP_TILES = 8;

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// Copies 16 bytes in the background; fills with zeros where there is nothing to copy.
__device__ __forceinline__ void copy_async(unsigned to, const Element* from, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(inside ? 16 : 0));
}

__device__ __forceinline__ void load_matrices(unsigned (&out)[4], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address));
}

__device__ __forceinline__ void load_matrices_transposed(unsigned (&out)[4], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address));
}

__device__ __forceinline__ void multiply_add(float (&sum)[4], const unsigned (&a)[4], unsigned b0,
                                             unsigned b1) {
    asm volatile(MULTIPLY "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ unsigned pack(float low, float high) {
    unsigned packed;
    asm(PACK "%0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

extern "C" __global__ __launch_bounds__(THREADS, 1) void gemm(const Element* a, const Element* b,
                                                              Element* c, int m, int n, int k) {
    extern __shared__ __align__(128) unsigned char shared[];
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;

    const int tiles_m = (m + TILE_M - 1) / TILE_M, tiles_n = (n + TILE_N - 1) / TILE_N;
    const int group = blockIdx.x / (GROUP_TILES * tiles_n);
    const int group_rows = min(tiles_m - group * GROUP_TILES, GROUP_TILES);
    const int in_group = blockIdx.x % (GROUP_TILES * tiles_n);
    const int first_row = (group * GROUP_TILES + in_group % group_rows) * TILE_M;
    const int first_column = in_group / group_rows * TILE_N;

    // What this thread copies of each tile: one chunk of every A_ROWS-th row of A and of every
    // B_ROWS-th row of B. Chunk i of a row lies at place i XOR (row mod 8): eight rows of one chunk,
    // which ldmatrix reads together, then fall into eight different groups of banks. Both distances
    // are multiples of eight, so that only pointers move on from tile to tile.
    const int a_chunk = thread % A_CHUNKS, a_row = thread / A_CHUNKS;
    const int b_chunk = thread % B_CHUNKS, b_row = thread / B_CHUNKS;
    const int column = first_column + b_chunk * CHUNK;
    const unsigned a_place = (a_row * A_CHUNKS + (a_chunk ^ a_row % 8)) * 16;
    const unsigned b_place = A_BYTES + (b_row * B_CHUNKS + (b_chunk ^ b_row % 8)) * 16;
    const Element* a_from = a + (size_t)(first_row + a_row) * k + a_chunk * CHUNK;
    const Element* b_from = b + (size_t)b_row * n + column;
    auto load_tile = [&](int tile) {
        const unsigned stage = shared_address(shared) + tile % STAGES * STAGE_BYTES;
        const int depth = tile * TILE_K;
#pragma unroll
        for (int i = 0; i < TILE_M / A_ROWS; ++i) {
            const bool inside = first_row + a_row + i * A_ROWS < m && depth + a_chunk * CHUNK < k;
            copy_async(stage + a_place + i * A_ROWS * A_CHUNKS * 16,
                       a_from + (size_t)i * A_ROWS * k, inside);
        }
#pragma unroll
        for (int i = 0; i < TILE_K / B_ROWS; ++i) {
            const bool inside = depth + b_row + i * B_ROWS < k && column < n;
            copy_async(stage + b_place + i * B_ROWS * B_CHUNKS * 16,
                       b_from + (size_t)i * B_ROWS * n, inside);
        }
        a_from += TILE_K;
        b_from += (size_t)TILE_K * n;
    };

    const int warp_row = warp / WARPS_N * 64, warp_column = warp % WARPS_N * 64;
    // Two sets of fragments: one is read while the other is multiplied.
    unsigned a_parts[2][4][4], b_parts[2][4][4];
    auto load_fragments = [&](int tile, int step) {
        const unsigned a_at = shared_address(shared) + tile % STAGES * STAGE_BYTES;
        const unsigned b_at = a_at + A_BYTES;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row = warp_row + i * 16 + lane % 16, chunk = step * 2 + lane / 16;
            load_matrices(a_parts[step % 2][i], a_at + (row * A_CHUNKS + (chunk ^ row % 8)) * 16);
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int row = step * 16 + lane % 16;
            const int chunk = (warp_column + j * 16) / CHUNK + lane / 16;
            load_matrices_transposed(b_parts[step % 2][j],
                                     b_at + (row * B_CHUNKS + (chunk ^ row % 8)) * 16);
        }
    };
    // A tile has arrived when at most STAGES - 2 younger groups are still under way.
    auto wait_for_tile = [] {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2));
        __syncthreads();
    };

    const int tiles = (k + TILE_K - 1) / TILE_K;
    for (int tile = 0; tile < STAGES - 1; ++tile) {
        if (tile < tiles) load_tile(tile);
        asm volatile("cp.async.commit_group;");
    }
    float sums[4][8][4] = {};
    wait_for_tile();
    load_fragments(0, 0);
    for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            if (step + 1 < STEPS) {
                load_fragments(tile, step + 1);
            } else {
                // The last fragments of this tile are in registers: its stage may be filled again
                // once all warps are here. Past the last tile this reads what nothing uses.
                wait_for_tile();
                load_fragments(tile + 1, 0);
            }
            if (step == 0) {
                if (tile + STAGES - 1 < tiles) load_tile(tile + STAGES - 1);
                asm volatile("cp.async.commit_group;");
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) {
#pragma unroll
                for (int j = 0; j < 8; ++j) {
                    const unsigned(&b_part)[4] = b_parts[step % 2][j / 2];
                    multiply_add(sums[i][j], a_parts[step % 2][i], b_part[j % 2 * 2],
                                 b_part[j % 2 * 2 + 1]);
                }
            }
        }
    }

#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            // mma.sync gives a thread two neighbours in a row, and the two eight rows below.
            const int pair = first_column + warp_column + j * 8 + lane % 4 * 2;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = first_row + warp_row + i * 16 + half * 8 + lane / 4;
                if (row < m && pair < n) {
                    *reinterpret_cast<unsigned*>(c + (size_t)row * n + pair) =
                        pack(sums[i][j][half * 2], sums[i][j][half * 2 + 1]);
                }
            }
        }
    }
}
