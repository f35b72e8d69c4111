// Rows in turn: a block of a persistent kernel solves one row in shared memory while the copy engine
// brings the next ones and takes solved ones away. Defined before this source, beside
// cuda_vectors.cu's: THREADS, STAGES.

// `solve` turns the row at its address in shared memory into its result there; each thread touches
// its own vectors only. The grid has at most `rows` blocks.
template <typename Solve>
__device__ __forceinline__ void in_turn(const ELEMENT* input, ELEMENT* output, int columns, int rows,
                                        Solve solve) {
    extern __shared__ __align__(16) unsigned char dynamic[];
    __shared__ Barrier full[STAGES];
    const int bytes = columns * sizeof(ELEMENT);
    const int count = (rows - blockIdx.x + gridDim.x - 1) / gridDim.x;
    auto place_of = [&](int index) {
        return (blockIdx.x + static_cast<long long>(index) * gridDim.x) * columns;
    };
    auto fetch = [&](int index) {
        const int stage = index % STAGES;
        expect_bytes(full[stage], bytes);
        load_row(shared_address(dynamic + stage * bytes), input + place_of(index), full[stage],
                 bytes);
    };
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) initialise(full[stage], 1);
        publish_barriers();
        for (int index = 0; index < min(STAGES, count); ++index) fetch(index);
    }
    __syncthreads();
    for (int index = 0; index < count; ++index) {
        const int stage = index % STAGES;
        ELEMENT* const row = reinterpret_cast<ELEMENT*>(dynamic + stage * bytes);
        wait(full[stage], index / STAGES % 2);
        solve(row);
        publish_shared();
        __syncthreads();
        if (threadIdx.x == 0) {
            store_row(output + place_of(index), shared_address(row), bytes);
            commit_stores();
            // The row before has left, and one more comes to where it was.
            const int next = index - 1 + STAGES;
            if (index > 0 && next < count) {
                wait_for_stores<1>();
                fetch(next);
            }
        }
    }
    if (threadIdx.x == 0) wait_for_stores<0>();
}
