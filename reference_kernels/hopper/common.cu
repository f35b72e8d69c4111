// What kernels of Hopper's own parts share: barriers, copies by TMA and products by wgmma.
// Defined before this source: BF16 1 or 0, what 16-bit numbers are; FP8 1 where operands are e4m3.

using Barrier = unsigned long long;

#define INFINITE __int_as_float(0x7f800000)

constexpr int WARPGROUP = 128;
// A row of a tile in shared memory; its chunks of 16 bytes are permuted by the row.
constexpr int ROW_BYTES = 128;
constexpr int EIGHT_ROWS_BYTES = 8 * ROW_BYTES;

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// The permutation is of the address, so tiles begin at multiples of eight rows.
__device__ __forceinline__ unsigned char* aligned(unsigned char* memory) {
    return memory + (EIGHT_ROWS_BYTES - shared_address(memory) % EIGHT_ROWS_BYTES) % EIGHT_ROWS_BYTES;
}

__device__ __forceinline__ void initialise(Barrier& barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)),
                 "r"(arrivals));
}

// Barriers are seen by the copy engine and by the other blocks of a cluster.
__device__ __forceinline__ void publish_barriers() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
}

__device__ __forceinline__ void expect_bytes(Barrier& barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                     shared_address(&barrier)),
                 "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void arrive(Barrier& barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier))
                 : "memory");
}

// Arrive at the barrier of the same place in block `block` of the cluster.
__device__ __forceinline__ void arrive_at(Barrier& barrier, int block) {
    asm volatile(
        "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(shared_address(&barrier)),
        "r"(block)
        : "memory");
}

__device__ __forceinline__ void wait(Barrier& barrier, int parity) {
    asm volatile(
        "{\n.reg .pred done;\nagain:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra over;\nbra again;\nover:\n}" ::"r"(shared_address(&barrier)),
        "r"(parity)
        : "memory");
}

// Barriers within a block have numbers from 1 on; 0 is __syncthreads.
__device__ __forceinline__ void synchronise(int number, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

__device__ __forceinline__ void load(unsigned to, const void* map, Barrier& barrier, int inner,
                                     int outer) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
        "l"(map), "r"(inner), "r"(outer), "r"(shared_address(&barrier))
        : "memory");
}

__device__ __forceinline__ void load(unsigned to, const void* map, Barrier& barrier, int inner,
                                     int row, int head) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
        "l"(map), "r"(inner), "r"(row), "r"(head), "r"(shared_address(&barrier))
        : "memory");
}

__device__ __forceinline__ void store(const void* map, unsigned from, int inner, int outer) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(
                     map),
                 "r"(inner), "r"(outer), "r"(from)
                 : "memory");
}

__device__ __forceinline__ void store(const void* map, unsigned from, int inner, int row,
                                      int head) {
    asm volatile(
        "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(map),
        "r"(inner), "r"(row), "r"(head), "r"(from)
        : "memory");
}

__device__ __forceinline__ void commit_stores() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Until the copy engine has read all but the last `LEFT` stores from shared memory.
template <int LEFT>
__device__ __forceinline__ void wait_for_stores() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(LEFT) : "memory");
}

// What threads wrote to shared memory is seen by the copy engine and by wgmma.
__device__ __forceinline__ void publish_shared() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// PTX ISA, "Matrix Descriptor Format": address, leading and stride offsets in units of 16 bytes,
// and 1 in the top bits for the permutation within 128 bytes.
__device__ __forceinline__ unsigned long long descriptor(unsigned address,
                                                         unsigned leading_bytes = 0) {
    return (unsigned long long)((address & 0x3ffff) >> 4) |
           (unsigned long long)(leading_bytes >> 4) << 16 |
           (unsigned long long)(EIGHT_ROWS_BYTES >> 4) << 32 | 1ull << 62;
}

#if BF16
#define PACK "cvt.rn.bf16x2.f32 "
#else
#define PACK "cvt.rn.f16x2.f32 "
#endif

__device__ __forceinline__ unsigned pack(float low, float high) {
    unsigned packed;
    asm(PACK "%0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

// Four 8 x 8 blocks of packed pairs, of which each lane names a row.
__device__ __forceinline__ void store_blocks(unsigned row, unsigned a, unsigned b, unsigned c,
                                             unsigned d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
                 "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}

__device__ __forceinline__ float power_of_two(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

#if FP8
#define KIND "k32.f32.e4m3.e4m3 "
#elif BF16
#define KIND "k16.f32.bf16.bf16 "
#else
#define KIND "k16.f32.f16.f16 "
#endif

#define FOUR(i) "+f"(x[i]), "+f"(x[i + 1]), "+f"(x[i + 2]), "+f"(x[i + 3])
#define SIXTEEN(i) FOUR(i), FOUR(i + 4), FOUR(i + 8), FOUR(i + 12)
#define VALUES_32 SIXTEEN(0), SIXTEEN(16)
#define VALUES_64 VALUES_32, SIXTEEN(32), SIXTEEN(48)
#define VALUES_128 VALUES_64, SIXTEEN(64), SIXTEEN(80), SIXTEEN(96), SIXTEEN(112)
#define NAMES_32                                                                              \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "   \
    "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_64                                                                              \
    NAMES_32                                                                                  \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, " \
    "%49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_128                                                                             \
    NAMES_64                                                                                  \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, " \
    "%81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, "   \
    "%98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "      \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, "    \
    "%126, %127"
#define PRODUCT(columns, names, operands, add, orders)                   \
    "{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, " add            \
    ", 0;\nwgmma.mma_async.sync.aligned.m64n" columns KIND "{" names     \
    "}, " operands ", accumulate, 1, 1" orders ";\n}"
// e4m3 lies along K always.
#if FP8
#define ORDERS(a, b) ""
#else
#define ORDERS(a, b) ", " a ", " b
#endif

// x += A B in the background, or A B where `add` is 0: 64 rows of A in shared memory, and 64, 128
// or 256 columns of B; K is 16 numbers, or 32 of e4m3. ACROSS 0: the operand lies along K, 1:
// across it.
template <int A_ACROSS, int B_ACROSS>
__device__ __forceinline__ void multiply(float (&x)[32], unsigned long long a,
                                         unsigned long long b, int add) {
    asm volatile(PRODUCT("64", NAMES_32, "%32, %33", "%34", ORDERS("%35", "%36"))
                 : VALUES_32
                 : "l"(a), "l"(b), "r"(add), "n"(A_ACROSS), "n"(B_ACROSS));
}

template <int A_ACROSS, int B_ACROSS>
__device__ __forceinline__ void multiply(float (&x)[64], unsigned long long a,
                                         unsigned long long b, int add) {
    asm volatile(PRODUCT("128", NAMES_64, "%64, %65", "%66", ORDERS("%67", "%68"))
                 : VALUES_64
                 : "l"(a), "l"(b), "r"(add), "n"(A_ACROSS), "n"(B_ACROSS));
}

template <int A_ACROSS, int B_ACROSS>
__device__ __forceinline__ void multiply(float (&x)[128], unsigned long long a,
                                         unsigned long long b, int add) {
    asm volatile(PRODUCT("256", NAMES_128, "%128, %129", "%130", ORDERS("%131", "%132"))
                 : VALUES_128
                 : "l"(a), "l"(b), "r"(add), "n"(A_ACROSS), "n"(B_ACROSS));
}

#if !FP8
// The same with A in registers and B across K.
__device__ __forceinline__ void multiply(float (&x)[32], const unsigned (&a)[4],
                                         unsigned long long b, int add) {
    asm volatile(PRODUCT("64", NAMES_32, "{%32, %33, %34, %35}, %36", "%37", ", 1")
                 : VALUES_32
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

__device__ __forceinline__ void multiply(float (&x)[64], const unsigned (&a)[4],
                                         unsigned long long b, int add) {
    asm volatile(PRODUCT("128", NAMES_64, "{%64, %65, %66, %67}, %68", "%69", ", 1")
                 : VALUES_64
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
#endif

// Before products read registers or shared memory that threads wrote.
__device__ __forceinline__ void begin_products() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void commit_products() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int LEFT>
__device__ __forceinline__ void wait_for_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

// Products run in the background: only after this may the compiler read their results.
template <int N>
__device__ __forceinline__ void are_done(float (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+f"(x[i])::"memory");
}

struct Item {
    int tile, head;
};

// What this block does in its nth round: see schedule.py. A negative tile: nothing more.
__device__ __forceinline__ Item item_of(const int2* schedule, int round) {
    const int2 item = __ldg(schedule + round * gridDim.x + blockIdx.x);
    return {item.x, item.y};
}
