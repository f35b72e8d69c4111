// One query a sequence on a cache in pages of 16 tokens. A block takes HEADS key heads of one split
// of one sequence: the copy engine brings a page's keys of all of them in one piece, then its
// values, and a warp a key head multiplies them. The splits of a sequence are a cluster, whose
// blocks put their results together through each other's shared memory.
//
// Products are m16n8k16, with the (up to 8) query heads of a key head as columns:
//   scores (16 keys x 8 heads) = keys (16 x HEAD) . queries (HEAD x 8)
//   sums (HEAD x 8 heads)      = values (HEAD x 16 keys) . weights (16 x 8)
// In which order a product adds up its inner dimension, and in which its rows stand, is free, so a
// lane takes as fragments 16 neighbouring bytes: of keys, 8 numbers of a row are two steps of the
// inner dimension. Of values a fragment wants the same number of two keys, which two rows' registers
// give byte by byte.

constexpr int PAGE = 16;
constexpr int LANES = 32;
constexpr int COLUMNS = 8;
// Numbers of 16 bytes, and of a row of shared memory.
constexpr int VECTOR = 8;
constexpr int ROW = 64;
constexpr int PIECES = HEAD / ROW;
// A quad of lanes takes 32 numbers of a key's row.
constexpr int CHUNKS = HEAD / 32;
constexpr int TILES = HEAD / 16;
constexpr int STAGE_BYTES = HEADS * PAGE * HEAD * 2;
// A warp a key head, and one that asks for pages.
constexpr int THREADS = (HEADS + 1) * LANES;

using Element = unsigned short;

#if BF16
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
#else
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
#endif

__device__ inline void multiply(float (&sum)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                unsigned b0, unsigned b1) {
    asm volatile(MMA " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Of two heads and one key a lane, to two keys and one head.
__device__ inline unsigned transposed(float first, float second) {
    unsigned result;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(pack(first, second)));
    return result;
}

// Over the eight lanes that hold other keys of the same heads.
__device__ inline float highest_of(float value) {
    for (int apart = 4; apart < LANES; apart *= 2)
        value = fmaxf(value, __shfl_xor_sync(~0u, value, apart));
    return value;
}

__device__ inline float sum_of(float value) {
    for (int apart = 4; apart < LANES; apart *= 2) value += __shfl_xor_sync(~0u, value, apart);
    return value;
}

// The token of a page that is row 0 to 7 of a product: so ordered that neither a quad's neighbours
// nor its members ask for the same banks of shared memory.
__device__ inline int token_of(int row) { return 0x57463120 >> row * 4 & 7; }

// 16 bytes of a token, from numbers 64 `piece` + 8 `chunk` on.
__device__ inline uint4 numbers_of(const unsigned char* head, int token, int piece, int chunk) {
    const int row = token * PIECES + piece;
    return *reinterpret_cast<const uint4*>(head + row * ROW_BYTES + (chunk ^ row % 8) * 16);
}

struct Values {
    // Of the tokens that are rows 2t, 2t + 1, 2t + 8 and 2t + 9, t being the lane's place in its quad.
    union {
        uint4 vectors[4][PIECES];
        unsigned pairs[4][4 * PIECES];
    };

    __device__ inline static int token(int which, int lane) {
        return which / 2 * 8 + token_of(lane % 4 * 2 + which % 2);
    }
    __device__ inline void read(const unsigned char* head, int lane) {
#pragma unroll
        for (int which = 0; which < 4; ++which)
#pragma unroll
            for (int piece = 0; piece < PIECES; ++piece)
                vectors[which][piece] = numbers_of(head, token(which, lane), piece, lane / 4);
    }
    // What a page holds beyond the sequence's end may be anything, and 0 times infinity is not 0.
    __device__ inline void clear_from(int kept, int lane) {
#pragma unroll
        for (int which = 0; which < 4; ++which)
            if (token(which, lane) >= kept)
#pragma unroll
                for (int pair = 0; pair < 4 * PIECES; ++pair) pairs[which][pair] = 0;
    }
    // The lane has HEAD / 8 numbers of a token; number `tile` of the lower or upper half of them, of
    // tokens `which` and the next.
    __device__ inline unsigned fragment(int tile, int upper, int which) const {
        const int pair = tile / 2 + upper * 2 * PIECES;
        return __byte_perm(pairs[which][pair], pairs[which + 1][pair], tile % 2 ? 0x7632 : 0x5410);
    }
    // Which of HEAD numbers that is.
    __device__ inline static int number(int tile, int upper, int lane) {
        const int pair = tile / 2 + upper * 2 * PIECES;
        return pair / 4 * ROW + lane / 4 * VECTOR + pair % 4 * 2 + tile % 2;
    }
};

__device__ inline void synchronise_cluster() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// What lies at `address` of another block's shared memory.
__device__ inline unsigned address_at(const void* address, int block) {
    unsigned remote;
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(remote)
        : "r"(shared_address(address)), "r"(block));
    return remote;
}

__device__ inline float value_at(const float* address, int block) {
    float value;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(address_at(address, block)));
    return value;
}

__device__ inline float4 values_at(const float4* address, int block) {
    float4 value;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
                 : "r"(address_at(address, block)));
    return value;
}

struct alignas(16) Results {
    float sums[HEADS * GROUP][HEAD];
    float maxima[HEADS * GROUP];
    float totals[HEADS * GROUP];
};

// Grid (splits, key heads / HEADS, sequences), clusters of all splits.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    decode(const Element* query, const void* key_map, const void* value_map, const int* block_table,
           const int* lengths, Element* output, int pages_per_sequence, int pages_per_split,
           float scale) {
    const int split = blockIdx.x, splits = gridDim.x, sequence = blockIdx.z;
    const int key_heads = gridDim.y * HEADS, first_head = blockIdx.y * HEADS;
    const int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const int length = lengths[sequence];
    const int first_page = split * pages_per_split;
    const int last_page = min(first_page + pages_per_split, (length + PAGE - 1) / PAGE);

    extern __shared__ unsigned char memory[];
    unsigned char* stages = aligned(memory);
    __shared__ Barrier full[STAGES], empty[STAGES];
    __shared__ Results results;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            initialise(full[stage], 1);
            initialise(empty[stage], HEADS);
        }
        publish_barriers();
    }
    __syncthreads();

    if (warp == HEADS) {
        if (lane == 0) {
            const int* table = block_table + (long long)sequence * pages_per_sequence;
            int next = table[min(first_page, pages_per_sequence - 1)];
            int item = 0;
            for (int page = first_page; page < last_page; ++page) {
                const int number = next;
                if (page + 1 < last_page) next = table[page + 1];
                const int row = (number * key_heads + first_head) * PAGE;
                for (int kind = 0; kind < 2; ++kind, ++item) {
                    const int stage = item % STAGES;
                    if (item >= STAGES) wait(empty[stage], (item / STAGES - 1) % 2);
                    expect_bytes(full[stage], STAGE_BYTES);
                    load(shared_address(stages + stage * STAGE_BYTES), kind ? value_map : key_map,
                         full[stage], 0, 0, row);
                }
            }
        }
        __syncwarp();
    } else {
        const long long first_query =
            ((long long)sequence * key_heads + first_head + warp) * GROUP;
        const int column = lane / 4;
        uint4 queries[CHUNKS] = {};
        if (column < GROUP)
#pragma unroll
            for (int chunk = 0; chunk < CHUNKS; ++chunk)
                queries[chunk] = *reinterpret_cast<const uint4*>(
                    query + (first_query + column) * HEAD + chunk * 32 + lane % 4 * VECTOR);

        float sums[TILES][4] = {};
        float maximum[2] = {-INFINITE, -INFINITE}, total[2] = {0, 0};
        const int row = token_of(lane / 4);
        int item = 0;
        // The stage of the next item, once it is there.
        auto filled = [&] {
            wait(full[item % STAGES], item / STAGES % 2);
            return stages + item % STAGES * STAGE_BYTES + warp * (PAGE * HEAD * 2);
        };
        auto release = [&] {
            __syncwarp();
            if (lane == 0) arrive(empty[item % STAGES]);
            ++item;
        };
        for (int page = first_page; page < last_page; ++page) {
            const unsigned char* keys = filled();
            float scores[4] = {}, others[4] = {};
#pragma unroll
            for (int chunk = 0; chunk < CHUNKS; ++chunk) {
                const int from = chunk % 2 * 4 + lane % 4;
                const uint4 low = numbers_of(keys, row, chunk / 2, from);
                const uint4 high = numbers_of(keys, row + 8, chunk / 2, from);
                const uint4 columns = queries[chunk];
                multiply(scores, low.x, high.x, low.y, high.y, columns.x, columns.y);
                multiply(others, low.z, high.z, low.w, high.w, columns.z, columns.w);
            }
            release();

#pragma unroll
            for (int i = 0; i < 4; ++i) scores[i] = (scores[i] + others[i]) * scale;
            const int kept = length - page * PAGE;
            if (kept < PAGE)
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    if (row + i / 2 * 8 >= kept) scores[i] = -INFINITE;
            float highest[2];
#pragma unroll
            for (int i = 0; i < 2; ++i)
                highest[i] = fmaxf(maximum[i], highest_of(fmaxf(scores[i], scores[i + 2])));
            if (__any_sync(~0u, highest[0] > maximum[0] || highest[1] > maximum[1])) {
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const float correction = power_of_two(maximum[i] - highest[i]);
                    total[i] *= correction;
#pragma unroll
                    for (int tile = 0; tile < TILES; ++tile) {
                        sums[tile][i] *= correction;
                        sums[tile][i + 2] *= correction;
                    }
                    maximum[i] = highest[i];
                }
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) scores[i] = power_of_two(scores[i] - maximum[i % 2]);
            total[0] += scores[0] + scores[2];
            total[1] += scores[1] + scores[3];
            const unsigned low = transposed(scores[0], scores[1]);
            const unsigned high = transposed(scores[2], scores[3]);

            Values values;
            values.read(filled(), lane);
            if (kept < PAGE) values.clear_from(kept, lane);
#pragma unroll
            for (int tile = 0; tile < TILES; ++tile)
                multiply(sums[tile], values.fragment(tile, 0, 0), values.fragment(tile, 1, 0),
                         values.fragment(tile, 0, 2), values.fragment(tile, 1, 2), low, high);
            release();
        }

#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int own = lane % 4 * 2 + i;
            total[i] = sum_of(total[i]);
            if (own < GROUP) {
                const int place = warp * GROUP + own;
                if (lane < 4) {
                    results.maxima[place] = maximum[i];
                    results.totals[place] = total[i];
                }
#pragma unroll
                for (int tile = 0; tile < TILES; ++tile) {
                    results.sums[place][Values::number(tile, 0, lane)] = sums[tile][i];
                    results.sums[place][Values::number(tile, 1, lane)] = sums[tile][i + 2];
                }
            }
        }
    }

    synchronise_cluster();
    // Four numbers a thread, of which each block of the cluster has its part.
    const long long first_row = ((long long)sequence * key_heads + first_head) * GROUP;
    for (int place = split * THREADS + threadIdx.x; place < HEADS * GROUP * HEAD / 4;
         place += splits * THREADS) {
        const int row = place / (HEAD / 4);
        float highest = -INFINITE, total = 0;
        float4 sum = {0, 0, 0, 0};
        for (int block = 0; block < splits; ++block) {
            const float maximum = value_at(results.maxima + row, block);
            const float part = value_at(results.totals + row, block);
            const float4 values = values_at(
                reinterpret_cast<const float4*>(results.sums) + place, block);
            const float above = fmaxf(highest, maximum);
            // A split without tokens has a maximum of minus infinity, and so may be the first.
            const float old = highest == -INFINITE ? 0 : power_of_two(highest - above);
            const float weight = maximum == -INFINITE ? 0 : power_of_two(maximum - above);
            total = total * old + part * weight;
            sum.x = sum.x * old + values.x * weight;
            sum.y = sum.y * old + values.y * weight;
            sum.z = sum.z * old + values.z * weight;
            sum.w = sum.w * old + values.w * weight;
            highest = above;
        }
        const uint2 packed = {pack(sum.x / total, sum.y / total), pack(sum.z / total, sum.w / total)};
        reinterpret_cast<uint2*>(output + first_row * HEAD)[place] = packed;
    }
    // Nobody's shared memory may go while another block reads it.
    synchronise_cluster();
}
