// FlashAttention-3's forward: one warpgroup brings tiles by TMA, two multiply by wgmma, each 64
// queries by 128 keys at a time; while one takes exponentials the other's products run. Defined
// before this source, beside hopper/common.cu's: HEAD (64 or 128), CAUSAL.

constexpr int ROWS = 128, COLUMNS = 128, STAGES = 2;
// Heads lie in blocks of 64 numbers, a row's 128 bytes.
constexpr int HEAD_BLOCKS = HEAD / 64;
constexpr int QUERY_BLOCK_BYTES = ROWS * ROW_BYTES, KEY_BLOCK_BYTES = COLUMNS * ROW_BYTES;
constexpr int QUERY_BYTES = HEAD_BLOCKS * QUERY_BLOCK_BYTES;
constexpr int KEY_BYTES = HEAD_BLOCKS * KEY_BLOCK_BYTES;
constexpr int SUMS = HEAD / 2, SCORES = COLUMNS / 2;

extern "C" __global__ __launch_bounds__(3 * WARPGROUP, 1) void flash(
    const void* query_map, const void* key_map, const void* value_map, const void* output_map,
    float* log_sum_exp, const int2* schedule, int length, int group, float scale_log2) {
    extern __shared__ unsigned char dynamic[];
    unsigned char* const queries = aligned(dynamic);
    unsigned char* const keys = queries + QUERY_BYTES;
    unsigned char* const values = keys + STAGES * KEY_BYTES;
    unsigned char* const staging = values + STAGES * KEY_BYTES;
    __shared__ Barrier queries_full, queries_empty, keys_full[STAGES], keys_empty[STAGES],
        values_full[STAGES], values_empty[STAGES];
    const int thread = threadIdx.x, warpgroup = thread / WARPGROUP;
    if (thread == 0) {
        initialise(queries_full, 1);
        initialise(queries_empty, 2);
        for (int stage = 0; stage < STAGES; ++stage) {
            initialise(keys_full[stage], 1);
            initialise(keys_empty[stage], 2);
            initialise(values_full[stage], 1);
            initialise(values_empty[stage], 2);
        }
        publish_barriers();
    }
    __syncthreads();

    const int columns = (length + COLUMNS - 1) / COLUMNS;
    int stage = 0, parity = 0, query_parity = 0;

    if (warpgroup == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (thread == 0) {
            for (int round = 0;; ++round) {
                const Item item = item_of(schedule, round);
                if (item.tile < 0) break;
                wait(queries_empty, query_parity ^ 1);
                expect_bytes(queries_full, QUERY_BYTES);
                for (int part = 0; part < HEAD_BLOCKS; ++part) {
                    load(shared_address(queries + part * QUERY_BLOCK_BYTES), query_map,
                         queries_full, part * 64, item.tile * ROWS, item.head);
                }
                query_parity ^= 1;
                const int blocks = CAUSAL ? min(item.tile + 1, columns) : columns;
                for (int block = blocks - 1; block >= 0; --block) {
                    wait(keys_empty[stage], parity ^ 1);
                    expect_bytes(keys_full[stage], KEY_BYTES);
                    for (int part = 0; part < HEAD_BLOCKS; ++part) {
                        load(shared_address(keys + stage * KEY_BYTES + part * KEY_BLOCK_BYTES),
                             key_map, keys_full[stage], part * 64, block * COLUMNS,
                             item.head / group);
                    }
                    wait(values_empty[stage], parity ^ 1);
                    expect_bytes(values_full[stage], KEY_BYTES);
                    for (int part = 0; part < HEAD_BLOCKS; ++part) {
                        load(shared_address(values + stage * KEY_BYTES + part * KEY_BLOCK_BYTES),
                             value_map, values_full[stage], part * 64, block * COLUMNS,
                             item.head / group);
                    }
                    if (++stage == STAGES) stage = 0, parity ^= 1;
                }
            }
        }
        return;
    }

    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    const int half = warpgroup - 1, in_group = thread % WARPGROUP;
    const int lane = thread % 32, warp = in_group / 32;
    const bool speaks = in_group == 0;
    const unsigned queries_at = shared_address(queries) + half * 64 * ROW_BYTES;
    const unsigned own_staging = shared_address(staging) + half * HEAD_BLOCKS * 64 * ROW_BYTES;
    const int stored_row = warp * 16 + lane / 8 % 2 * 8 + lane % 8;
    const unsigned stored_at = own_staging + stored_row * ROW_BYTES;
    // The first warpgroup has the tensor cores first.
    if (half == 1) asm volatile("bar.arrive 2, 256;" ::: "memory");

    float scores[SCORES], sums[SUMS];
    unsigned weights[SCORES / 8][4];
    float highest[2], total[2];

    auto issue_keys = [&](int at_stage) {
        const unsigned at = shared_address(keys) + at_stage * KEY_BYTES;
        begin_products();
#pragma unroll
        for (int step = 0; step < HEAD / 16; ++step) {
            const int part = step / 4, within = step % 4 * 32;
            multiply<0, 0>(scores, descriptor(queries_at + part * QUERY_BLOCK_BYTES + within, 0),
                          descriptor(at + part * KEY_BLOCK_BYTES + within, 0), step);
        }
        commit_products();
    };
    auto issue_values = [&](int at_stage, int add) {
        const unsigned at = shared_address(values) + at_stage * KEY_BYTES;
        begin_products();
#pragma unroll
        for (int step = 0; step < COLUMNS / 16; ++step) {
            multiply(sums, weights[step],
                     descriptor(at + step * 2 * EIGHT_ROWS_BYTES, KEY_BLOCK_BYTES),
                     add + step);
        }
        commit_products();
    };
    auto mask = [&](int block, int row) {
#pragma unroll
        for (int i = 0; i < SCORES; ++i) {
            const int column = block * COLUMNS + i / 4 * 8 + lane % 4 * 2 + i % 2;
            const int own_row = row + i / 2 % 2 * 8;
            if (column >= length || (CAUSAL && column > own_row)) scores[i] = -INFINITE;
        }
    };
    // Maxima, weights and their sums of 64 by 128 scores; what the sums so far are worth less.
    auto soften = [&](float (&correction)[2]) {
        float most[2] = {highest[0], highest[1]};
#pragma unroll
        for (int i = 0; i < SCORES; ++i) most[i / 2 % 2] = fmaxf(most[i / 2 % 2], scores[i]);
#pragma unroll
        for (int side = 0; side < 2; ++side) {
            most[side] = fmaxf(most[side], __shfl_xor_sync(0xffffffff, most[side], 1));
            most[side] = fmaxf(most[side], __shfl_xor_sync(0xffffffff, most[side], 2));
            // Nothing of the row was kept yet: its weights are 0 and not NaN.
            const float shift = most[side] == -INFINITE ? 0.0f : most[side] * scale_log2;
            correction[side] = power_of_two(highest[side] * scale_log2 - shift);
            highest[side] = most[side];
            most[side] = shift;
            total[side] *= correction[side];
        }
#pragma unroll
        for (int i = 0; i < SCORES; ++i) {
            scores[i] = power_of_two(scores[i] * scale_log2 - most[i / 2 % 2]);
            total[i / 2 % 2] += scores[i];
        }
    };
    auto pack_weights = [&]() {
#pragma unroll
        for (int i = 0; i < SCORES; i += 2) {
            weights[i / 8][i / 2 % 4] = pack(scores[i], scores[i + 1]);
        }
    };

    for (int round = 0;; ++round) {
        const Item item = item_of(schedule, round);
        if (item.tile < 0) break;
        const int row = item.tile * ROWS + half * 64 + warp * 16 + lane / 4;
        const int blocks = CAUSAL ? min(item.tile + 1, columns) : columns;
        highest[0] = highest[1] = -INFINITE;
        total[0] = total[1] = 0.0f;
        float correction[2];

        wait(queries_full, query_parity);
        query_parity ^= 1;
        wait(keys_full[stage], parity);
        issue_keys(stage);
        wait_for_products<0>();
        are_done(scores);
        if (speaks) arrive(keys_empty[stage]);
        mask(blocks - 1, row);
        soften(correction);
        pack_weights();
        for (int block = blocks - 2; block >= 0; --block) {
            const int before = stage, before_parity = parity;
            if (++stage == STAGES) stage = 0, parity ^= 1;
            wait(keys_full[stage], parity);
            synchronise(2 + half, 256);
            issue_keys(stage);
            wait(values_full[before], before_parity);
            issue_values(before, block != blocks - 2);
            asm volatile("bar.arrive %0, 256;" ::"r"(3 - half) : "memory");
            wait_for_products<1>();
            are_done(scores);
            if (speaks) arrive(keys_empty[stage]);
            soften(correction);
            // The assembler would take the exponentials after the products, not beside them, but not
            // past a branch: sums of exponentials are never negative.
            while (total[0] + total[1] < 0.0f) asm volatile("nanosleep.u32 1;");
            wait_for_products<0>();
            are_done(sums);
            if (speaks) arrive(values_empty[before]);
#pragma unroll
            for (int i = 0; i < SUMS; ++i) sums[i] *= correction[i / 2 % 2];
            pack_weights();
        }
        if (speaks) arrive(queries_empty);
        wait(values_full[stage], parity);
        issue_values(stage, blocks != 1);
#pragma unroll
        for (int side = 0; side < 2; ++side) {
            total[side] += __shfl_xor_sync(0xffffffff, total[side], 1);
            total[side] += __shfl_xor_sync(0xffffffff, total[side], 2);
            const int own_row = row + side * 8;
            if (lane % 4 == 0 && own_row < length) {
                log_sum_exp[(size_t)item.head * length + own_row] =
                    highest[side] * scale_log2 + __log2f(total[side]);
            }
        }
        wait_for_products<0>();
        are_done(sums);
        if (speaks) arrive(values_empty[stage]);
        if (++stage == STAGES) stage = 0, parity ^= 1;

        const float share[2] = {1.0f / total[0], 1.0f / total[1]};
        if (speaks) wait_for_stores<0>();
        synchronise(4 + half, WARPGROUP);
#pragma unroll
        for (int first = 0; first < SUMS; first += 8) {
            const int pair = first / 8 % 4;
            const unsigned block_at = stored_at + first / 32 * 64 * ROW_BYTES;
            const unsigned chunk = pair * 2 + lane / 16;
            store_blocks(block_at + (chunk ^ stored_row % 8) * 16,
                         pack(sums[first] * share[0], sums[first + 1] * share[0]),
                         pack(sums[first + 2] * share[1], sums[first + 3] * share[1]),
                         pack(sums[first + 4] * share[0], sums[first + 5] * share[0]),
                         pack(sums[first + 6] * share[1], sums[first + 7] * share[1]));
        }
        publish_shared();
        synchronise(4 + half, WARPGROUP);
        if (speaks) {
            for (int part = 0; part < HEAD_BLOCKS; ++part) {
                store(output_map, own_staging + part * 64 * ROW_BYTES, part * 64,
                      item.tile * ROWS + half * 64, item.head);
            }
            commit_stores();
        }
    }
    if (speaks) wait_for_stores<0>();
    // What was promised to the other warpgroup at the start has to be taken by somebody.
    if (half == 0) synchronise(2, 256);
}
