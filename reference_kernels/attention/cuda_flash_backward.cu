// Attention's backward, HEAD = 128: a block keeps 128 keys and their gradients and walks over the
// queries, 64 at a time. One warpgroup brings tiles by TMA; two have 64 keys each. Scores stand
// keys by queries, so that weights and their gradients go from registers into the products that sum
// over queries. Gradients of queries need them from both warpgroups, by shared memory, and are
// added up in device memory by the copy engine, in the order of the registers. Defined before this
// source, beside hopper/common.cu's: CAUSAL.

constexpr int HEAD = 128, KEYS = 128, QUERIES = 64, STAGES = 2;
constexpr int KEY_BLOCK_BYTES = KEYS * ROW_BYTES, KEY_BYTES = 2 * KEY_BLOCK_BYTES;
constexpr int QUERY_BLOCK_BYTES = QUERIES * ROW_BYTES, QUERY_BYTES = 2 * QUERY_BLOCK_BYTES;
constexpr int WEIGHT_BYTES = KEYS * ROW_BYTES;
constexpr int ROW_FLOATS_BYTES = QUERIES * 4;
// Of one warpgroup: 64 queries by 64 numbers in float32, or 64 keys by 128 in 16 bits.
constexpr int STAGING_BYTES = 64 * 64 * 4;

// Bytes that lie in a row, such as 64 float32.
__device__ __forceinline__ void load_row(unsigned to, const void* from, Barrier& barrier, int bytes) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            to),
        "l"(from), "r"(bytes), "r"(shared_address(&barrier))
        : "memory");
}

__device__ __forceinline__ void add_row(float* to, unsigned from, int bytes) {
    asm volatile(
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
        "r"(from), "r"(bytes)
        : "memory");
}

// `log_sum_exp` (base 2) and `delta` have rows of `padded` numbers a head, infinite and 0 past the
// end. `query_sums` has 64 * 128 float32 for each 64 queries of a head, and is 0 before.
extern "C" __global__ __launch_bounds__(3 * WARPGROUP, 1) void flash_backward(
    const void* query_map, const void* key_map, const void* value_map, const void* gradient_map,
    const void* key_gradient_map, const void* value_gradient_map, const float* log_sum_exp,
    const float* delta, float* query_sums, const int2* schedule, int length, int padded, int group,
    float scale, float scale_log2) {
    extern __shared__ unsigned char dynamic[];
    unsigned char* const keys = aligned(dynamic);
    unsigned char* const values = keys + KEY_BYTES;
    unsigned char* const queries = values + KEY_BYTES;
    unsigned char* const gradients = queries + STAGES * QUERY_BYTES;
    unsigned char* const weights_at = gradients + STAGES * QUERY_BYTES;
    unsigned char* const staging = weights_at + WEIGHT_BYTES;
    float* const row_sums = reinterpret_cast<float*>(staging + 2 * STAGING_BYTES);
    float* const row_deltas = row_sums + STAGES * QUERIES;
    __shared__ Barrier keys_full, keys_empty, queries_full[STAGES], queries_empty[STAGES],
        gradients_full[STAGES], gradients_empty[STAGES];
    const int thread = threadIdx.x, warpgroup = thread / WARPGROUP;
    if (thread == 0) {
        initialise(keys_full, 1);
        initialise(keys_empty, 2);
        for (int stage = 0; stage < STAGES; ++stage) {
            initialise(queries_full[stage], 1);
            initialise(queries_empty[stage], 2);
            initialise(gradients_full[stage], 1);
            initialise(gradients_empty[stage], 2);
        }
        publish_barriers();
    }
    __syncthreads();
    const int tiles = padded / QUERIES;
    int stage = 0, parity = 0, key_parity = 0;

    if (warpgroup == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (thread == 0) {
            for (int round = 0;; ++round) {
                const Item item = item_of(schedule, round);
                if (item.tile < 0) break;
                wait(keys_empty, key_parity ^ 1);
                key_parity ^= 1;
                expect_bytes(keys_full, 2 * KEY_BYTES);
                for (int part = 0; part < 2; ++part) {
                    load(shared_address(keys + part * KEY_BLOCK_BYTES), key_map, keys_full,
                         part * 64, item.tile * KEYS, item.head);
                    load(shared_address(values + part * KEY_BLOCK_BYTES), value_map, keys_full,
                         part * 64, item.tile * KEYS, item.head);
                }
                const int first = CAUSAL ? item.tile * (KEYS / QUERIES) : 0;
                for (int head = item.head * group; head < (item.head + 1) * group; ++head) {
                    for (int tile = first; tile < tiles; ++tile) {
                        const size_t row = (size_t)head * padded + tile * QUERIES;
                        wait(queries_empty[stage], parity ^ 1);
                        expect_bytes(queries_full[stage], QUERY_BYTES + ROW_FLOATS_BYTES);
                        for (int part = 0; part < 2; ++part) {
                            load(shared_address(queries + stage * QUERY_BYTES +
                                                part * QUERY_BLOCK_BYTES),
                                 query_map, queries_full[stage], part * 64, tile * QUERIES, head);
                        }
                        load_row(shared_address(row_sums + stage * QUERIES), log_sum_exp + row,
                                 queries_full[stage], ROW_FLOATS_BYTES);
                        wait(gradients_empty[stage], parity ^ 1);
                        expect_bytes(gradients_full[stage], QUERY_BYTES + ROW_FLOATS_BYTES);
                        for (int part = 0; part < 2; ++part) {
                            load(shared_address(gradients + stage * QUERY_BYTES +
                                                part * QUERY_BLOCK_BYTES),
                                 gradient_map, gradients_full[stage], part * 64, tile * QUERIES,
                                 head);
                        }
                        load_row(shared_address(row_deltas + stage * QUERIES), delta + row,
                                 gradients_full[stage], ROW_FLOATS_BYTES);
                        if (++stage == STAGES) stage = 0, parity ^= 1;
                    }
                }
            }
        }
        return;
    }

    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    const int half = warpgroup - 1, in_group = thread % WARPGROUP;
    const int lane = thread % 32, warp = in_group / 32;
    const bool speaks = in_group == 0;
    const unsigned own_keys = shared_address(keys) + half * 64 * ROW_BYTES;
    const unsigned own_values = shared_address(values) + half * 64 * ROW_BYTES;
    const unsigned all_weights = shared_address(weights_at);
    unsigned char* const own_staging = staging + half * STAGING_BYTES;
    const int stored_row = warp * 16 + lane / 8 % 2 * 8 + lane % 8;
    const unsigned weights_row = all_weights + (half * 64 + stored_row) * ROW_BYTES;

    float scores[32], weight_gradients[32], query_gradients[32];
    float key_gradients[64], value_gradients[64];
    unsigned weights[4][4], packed[4][4];

    // What stands in registers as a tile of 64 keys by 128 numbers leaves as the gradient of its
    // kind.
    auto store_gradients = [&](float(&x)[64], float factor, const void* map, const Item& item) {
        if (speaks) wait_for_stores<0>();
        synchronise(2 + half, WARPGROUP);
        const unsigned at = shared_address(own_staging) + stored_row * ROW_BYTES;
#pragma unroll
        for (int first = 0; first < 64; first += 8) {
            const unsigned chunk = first / 8 % 4 * 2 + lane / 16;
            store_blocks(at + first / 32 * 64 * ROW_BYTES + (chunk ^ stored_row % 8) * 16,
                         pack(x[first] * factor, x[first + 1] * factor),
                         pack(x[first + 2] * factor, x[first + 3] * factor),
                         pack(x[first + 4] * factor, x[first + 5] * factor),
                         pack(x[first + 6] * factor, x[first + 7] * factor));
        }
        publish_shared();
        synchronise(2 + half, WARPGROUP);
        if (speaks) {
            for (int part = 0; part < 2; ++part) {
                store(map, shared_address(own_staging) + part * 64 * ROW_BYTES, part * 64,
                      item.tile * KEYS + half * 64, item.head);
            }
            commit_stores();
        }
    };

    for (int round = 0;; ++round) {
        const Item item = item_of(schedule, round);
        if (item.tile < 0) break;
        const int first = CAUSAL ? item.tile * (KEYS / QUERIES) : 0;
        const int key = item.tile * KEYS + half * 64 + warp * 16 + lane / 4;
        wait(keys_full, key_parity);
        key_parity ^= 1;
        int add = 0;
        for (int head = item.head * group; head < (item.head + 1) * group; ++head) {
            for (int tile = first; tile < tiles; ++tile) {
                const unsigned queries_at = shared_address(queries + stage * QUERY_BYTES);
                const unsigned gradients_at = shared_address(gradients + stage * QUERY_BYTES);
                wait(queries_full[stage], parity);
                begin_products();
#pragma unroll
                for (int step = 0; step < HEAD / 16; ++step) {
                    const int part = step / 4, within = step % 4 * 32;
                    multiply<0, 0>(scores,
                                   descriptor(own_keys + part * KEY_BLOCK_BYTES + within, 0),
                                   descriptor(queries_at + part * QUERY_BLOCK_BYTES + within, 0),
                                   step);
                }
                commit_products();
                wait(gradients_full[stage], parity);
#pragma unroll
                for (int step = 0; step < HEAD / 16; ++step) {
                    const int part = step / 4, within = step % 4 * 32;
                    multiply<0, 0>(weight_gradients,
                                   descriptor(own_values + part * KEY_BLOCK_BYTES + within, 0),
                                   descriptor(gradients_at + part * QUERY_BLOCK_BYTES + within, 0),
                                   step);
                }
                commit_products();
                wait_for_products<1>();
                are_done(scores);
                const float2* const sums_of =
                    reinterpret_cast<const float2*>(row_sums + stage * QUERIES) + lane % 4;
                const float2* const deltas_of =
                    reinterpret_cast<const float2*>(row_deltas + stage * QUERIES) + lane % 4;
                const bool masked = CAUSAL && tile < first + KEYS / QUERIES;
#pragma unroll
                for (int i = 0; i < 32; i += 4) {
                    const float2 sum = sums_of[i];
#pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        const float shift = j % 2 ? sum.y : sum.x;
                        scores[i + j] = power_of_two(scores[i + j] * scale_log2 - shift);
                        if (masked) {
                            const int query = tile * QUERIES + i * 2 + lane % 4 * 2 + j % 2;
                            if (query < key + j / 2 * 8) scores[i + j] = 0.0f;
                        }
                    }
                }
#pragma unroll
                for (int i = 0; i < 32; i += 2) {
                    weights[i / 8][i / 2 % 4] = pack(scores[i], scores[i + 1]);
                }
                begin_products();
#pragma unroll
                for (int step = 0; step < QUERIES / 16; ++step) {
                    multiply(value_gradients, weights[step],
                        descriptor(gradients_at + step * 2 * EIGHT_ROWS_BYTES, QUERY_BLOCK_BYTES),
                        add + step);
                }
                commit_products();
                wait_for_products<1>();
                are_done(weight_gradients);
#pragma unroll
                for (int i = 0; i < 32; i += 4) {
                    const float2 own = deltas_of[i];
#pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        scores[i + j] *= weight_gradients[i + j] - (j % 2 ? own.y : own.x);
                    }
                }
#pragma unroll
                for (int i = 0; i < 32; i += 2) {
                    packed[i / 8][i / 2 % 4] = pack(scores[i], scores[i + 1]);
                }
                // Both warpgroups have read what was here.
                synchronise(1, 256);
#pragma unroll
                for (int step = 0; step < 4; ++step) {
                    const unsigned chunk = step * 2 + lane / 16;
                    store_blocks(weights_row + (chunk ^ stored_row % 8) * 16, packed[step][0],
                                 packed[step][1], packed[step][2], packed[step][3]);
                }
                publish_shared();
                synchronise(1, 256);
                begin_products();
#pragma unroll
                for (int step = 0; step < KEYS / 16; ++step) {
                    multiply<1, 1>(query_gradients,
                                    descriptor(all_weights + step * 2 * EIGHT_ROWS_BYTES, 0),
                                    descriptor(shared_address(keys) + half * KEY_BLOCK_BYTES +
                                                   step * 2 * EIGHT_ROWS_BYTES,
                                               0),
                                    step);
                }
                commit_products();
#pragma unroll
                for (int step = 0; step < QUERIES / 16; ++step) {
                    multiply(key_gradients, packed[step],
                        descriptor(queries_at + step * 2 * EIGHT_ROWS_BYTES, QUERY_BLOCK_BYTES),
                        add + step);
                }
                commit_products();
                add = 1;
                wait_for_products<1>();
                are_done(query_gradients);
                if (speaks) {
                    arrive(gradients_empty[stage]);
                    wait_for_stores<0>();
                }
                synchronise(2 + half, WARPGROUP);
#pragma unroll
                for (int i = 0; i < 32; i += 4) {
                    reinterpret_cast<float4*>(own_staging)[i / 4 * WARPGROUP + in_group] =
                        make_float4(query_gradients[i], query_gradients[i + 1],
                                    query_gradients[i + 2], query_gradients[i + 3]);
                }
                publish_shared();
                synchronise(2 + half, WARPGROUP);
                if (speaks) {
                    const size_t to = ((size_t)head * tiles + tile) * QUERIES * HEAD;
                    add_row(query_sums + to + half * 64 * 64, shared_address(own_staging),
                            STAGING_BYTES);
                    commit_stores();
                }
                wait_for_products<0>();
                are_done(key_gradients);
                are_done(value_gradients);
                if (speaks) arrive(queries_empty[stage]);
                if (++stage == STAGES) stage = 0, parity ^= 1;
            }
        }
        if (speaks) arrive(keys_empty);
        store_gradients(value_gradients, 1.0f, value_gradient_map, item);
        store_gradients(key_gradients, scale, key_gradient_map, item);
    }
    if (speaks) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// delta = the sum of output times gradient of a row, and log_sum_exp in rows of `padded`; a warp a
// row.
extern "C" __global__ void prepare(const uint2* output, const uint2* gradient,
                                   const float* log_sum_exp, float* padded_sums, float* delta,
                                   int length, int padded, int heads) {
    const int lane = threadIdx.x % 32;
    const size_t row = (size_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= (size_t)heads * padded) return;
    const size_t head = row / padded, place = row % padded;
    float sum = 0.0f;
    const bool inside = place < length;
    if (inside) {
        const size_t at = (head * length + place) * (HEAD / 4) + lane;
        const uint2 x = output[at], y = gradient[at];
        const unsigned pairs[4] = {x.x, x.y, y.x, y.y};
        float numbers[8];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#if BF16
            numbers[2 * i] = __uint_as_float(pairs[i] << 16);
            numbers[2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000);
#else
            asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\ncvt.f32.f16 %0, low;\n"
                "cvt.f32.f16 %1, high;\n}"
                : "=f"(numbers[2 * i]), "=f"(numbers[2 * i + 1])
                : "r"(pairs[i]));
#endif
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) sum += numbers[i] * numbers[4 + i];
    }
#pragma unroll
    for (int other = 16; other; other /= 2) sum += __shfl_xor_sync(0xffffffff, sum, other);
    if (lane == 0) {
        padded_sums[row] = inside ? log_sum_exp[head * length + place] : INFINITE;
        delta[row] = inside ? sum : 0.0f;
    }
}

// The sums of 64 queries, in the order of registers, times `scale` as a row-major tile; a block
// each.
extern "C" __global__ __launch_bounds__(256) void finish(const float4* query_sums,
                                                         unsigned* query_gradient, int length,
                                                         int tiles, float scale) {
    __shared__ unsigned tile_of[QUERIES][HEAD / 2 + 4];
    const int half = threadIdx.x / WARPGROUP, in_group = threadIdx.x % WARPGROUP;
    const int lane = threadIdx.x % 32, warp = in_group / 32;
    const float4* const from = query_sums + (size_t)blockIdx.x * (QUERIES * HEAD / 4) + half * 1024;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const float4 x = from[i * WARPGROUP + in_group];
        const int row = warp * 16 + lane / 4, column = half * 32 + i * 4 + lane % 4;
        tile_of[row][column] = pack(x.x * scale, x.y * scale);
        tile_of[row + 8][column] = pack(x.z * scale, x.w * scale);
    }
    __syncthreads();
    const int head = blockIdx.x / tiles, first = blockIdx.x % tiles * QUERIES;
    for (int at = threadIdx.x; at < QUERIES * (HEAD / 2); at += 256) {
        const int row = at / (HEAD / 2), column = at % (HEAD / 2);
        if (first + row < length) {
            query_gradient[((size_t)head * length + first + row) * (HEAD / 2) + column] =
                tile_of[row][column];
        }
    }
}
