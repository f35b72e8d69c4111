// Hopper's wgmma: a block of two warpgroups computes 128 x 256 elements of C, each 64 x 256.
// BF16 (1 or 0) says what the 16-bit operands are.

#if BF16
#define MULTIPLY "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
#define PACK "cvt.rn.bf16x2.f32 "
#else
#define MULTIPLY "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 "
#define PACK "cvt.rn.f16x2.f32 "
#endif

using Element = unsigned short;

constexpr int THREADS = 256;
constexpr int TILE_M = 128, TILE_N = 256, TILE_K = 64;
constexpr int STAGES = 3;
// 16 bytes: what cp.async copies.
constexpr int CHUNK = 8;
// wgmma reads shared memory in rows of 128 bytes whose eight chunks are permuted by the row.
constexpr int ROW_CHUNKS = 8, ROW_BYTES = 128;
constexpr int A_BYTES = TILE_M * ROW_BYTES;
// B lies in blocks of 64 columns, each with its TILE_K rows.
constexpr int B_BLOCK_BYTES = TILE_K * ROW_BYTES, B_BYTES = TILE_N / 64 * B_BLOCK_BYTES;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int EIGHT_ROWS_BYTES = 8 * ROW_BYTES;
// Rows that the block copies at a time.
constexpr int A_ROWS = THREADS / ROW_CHUNKS, B_ROWS = THREADS / 32;
// Blocks are numbered down columns of this many tiles: see cuda_tensor_core.cu.
constexpr int GROUP_TILES = 8;

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// Copies 16 bytes in the background; fills with zeros where there is nothing to copy.
__device__ __forceinline__ void copy_async(unsigned to, const Element* from, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(inside ? 16 : 0));
}

// PTX ISA, "Matrix Descriptor Format": address, leading and stride offsets in units of 16 bytes,
// and 1 in the top bits for the permutation within 128 bytes.
__device__ __forceinline__ unsigned long long descriptor(unsigned address, unsigned leading_bytes,
                                                         unsigned stride_bytes) {
    return (unsigned long long)((address & 0x3ffff) >> 4) |
           (unsigned long long)(leading_bytes >> 4) << 16 |
           (unsigned long long)(stride_bytes >> 4) << 32 | 1ull << 62;
}

#define FOUR(i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define SIXTEEN(i) FOUR(i), FOUR(i + 4), FOUR(i + 8), FOUR(i + 12)

// sums += a b for 64 x 16 of A and 16 x 256 of B, in the background. The last two numbers of the
// instruction: A lies along K, B across it.
__device__ __forceinline__ void multiply_add(float (&sums)[128], unsigned long long a,
                                             unsigned long long b) {
    asm volatile(
        "{\n.reg .pred accumulate;\nsetp.eq.u32 accumulate, 0, 0;\n" MULTIPLY
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, "
        "%110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, "
        "%124, %125, %126, %127}, %128, %129, accumulate, 1, 1, 0, 1;\n}"
        : SIXTEEN(0), SIXTEEN(16), SIXTEEN(32), SIXTEEN(48), SIXTEEN(64), SIXTEEN(80), SIXTEEN(96),
          SIXTEEN(112)
        : "l"(a), "l"(b));
}

__device__ __forceinline__ unsigned pack(float low, float high) {
    unsigned packed;
    asm(PACK "%0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

extern "C" __global__ __launch_bounds__(THREADS, 1) void gemm(const Element* a, const Element* b,
                                                              Element* c, int m, int n, int k) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;

    const int tiles_m = (m + TILE_M - 1) / TILE_M, tiles_n = (n + TILE_N - 1) / TILE_N;
    const int group = blockIdx.x / (GROUP_TILES * tiles_n);
    const int group_rows = min(tiles_m - group * GROUP_TILES, GROUP_TILES);
    const int in_group = blockIdx.x % (GROUP_TILES * tiles_n);
    const int first_row = (group * GROUP_TILES + in_group % group_rows) * TILE_M;
    const int first_column = in_group / group_rows * TILE_N;

    // What this thread copies of each tile: chunk `chunk` of every 32nd row of A; of B, whose rows of
    // 512 bytes a warp takes whole, every 8th row. Rows a multiple of eight apart have the same
    // permutation, so only pointers move on from tile to tile.
    const int chunk = thread % ROW_CHUNKS, a_row = thread / ROW_CHUNKS, b_row = warp;
    const int column = first_column + lane * CHUNK;
    const unsigned a_place = a_row * ROW_BYTES + (chunk ^ a_row % 8) * 16;
    const unsigned b_place = A_BYTES + lane / ROW_CHUNKS * B_BLOCK_BYTES + b_row * ROW_BYTES +
                             (chunk ^ b_row % 8) * 16;
    const Element* a_from = a + (size_t)(first_row + a_row) * k + chunk * CHUNK;
    const Element* b_from = b + (size_t)b_row * n + column;
    auto load_tile = [&](int tile) {
        const unsigned stage = shared_address(shared) + tile % STAGES * STAGE_BYTES;
        const int depth = tile * TILE_K;
#pragma unroll
        for (int i = 0; i < TILE_M / A_ROWS; ++i) {
            const bool inside = first_row + a_row + i * A_ROWS < m && depth + chunk * CHUNK < k;
            copy_async(stage + a_place + i * A_ROWS * ROW_BYTES, a_from + (size_t)i * A_ROWS * k,
                       inside);
        }
#pragma unroll
        for (int i = 0; i < TILE_K / B_ROWS; ++i) {
            const bool inside = depth + b_row + i * B_ROWS < k && column < n;
            copy_async(stage + b_place + i * B_ROWS * ROW_BYTES, b_from + (size_t)i * B_ROWS * n,
                       inside);
        }
        a_from += TILE_K;
        b_from += (size_t)TILE_K * n;
    };

    const int tiles = (k + TILE_K - 1) / TILE_K;
    for (int tile = 0; tile < STAGES - 1; ++tile) {
        if (tile < tiles) load_tile(tile);
        asm volatile("cp.async.commit_group;");
    }

    float sums[128] = {};
    for (int tile = 0; tile < tiles; ++tile) {
        // This tile has arrived when at most STAGES - 2 younger groups are still under way. wgmma
        // reads by another path than cp.async writes: the fence orders the two.
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2));
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();

        const unsigned stage = shared_address(shared) + tile % STAGES * STAGE_BYTES;
        const unsigned a_at = stage + warp / 4 * 64 * ROW_BYTES, b_at = stage + A_BYTES;
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int step = 0; step < TILE_K / 16; ++step) {
            // 16 deep: 32 bytes along the rows of A, two groups of eight rows of B.
            multiply_add(
                sums, descriptor(a_at + step * 32, 0, EIGHT_ROWS_BYTES),
                descriptor(b_at + step * 2 * EIGHT_ROWS_BYTES, B_BLOCK_BYTES, EIGHT_ROWS_BYTES));
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");

        // The products of this tile go on in the background; those of the one before are done, in
        // both warpgroups after the barrier, and its stage is filled again.
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        __syncthreads();
        if (tile + STAGES - 1 < tiles) load_tile(tile + STAGES - 1);
        asm volatile("cp.async.commit_group;");
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");

#pragma unroll
    for (int j = 0; j < TILE_N / 8; ++j) {
        // A thread has two neighbours in a row, and the two eight rows below.
        const int pair = first_column + j * 8 + lane % 4 * 2;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = first_row + warp * 16 + half * 8 + lane / 4;
            if (row < m && pair < n) {
                *reinterpret_cast<unsigned*>(c + (size_t)row * n + pair) =
                    pack(sums[j * 4 + half * 2], sums[j * 4 + half * 2 + 1]);
            }
        }
    }
}
