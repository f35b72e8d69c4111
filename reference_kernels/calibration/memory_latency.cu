// Chains of loads, each of which needs the one before: how long one load takes at each level.
//
// A line of the chain holds the address of the next one. A call goes on where the last one ended, so
// that a chain longer than the caches is never found in them.

#define CHASE(NAME, LOAD)                                                             \
    extern "C" __global__ void NAME(unsigned long long* place, int hops) {            \
        unsigned long long at = *place;                                               \
        for (int hop = 0; hop < hops; hop += 8) {                                     \
            _Pragma("unroll") for (int i = 0; i < 8; ++i) {                           \
                asm volatile(LOAD " %0, [%0];" : "+l"(at));                           \
            }                                                                         \
        }                                                                             \
        *place = at;                                                                  \
    }

// Through L1, and past it.
CHASE(chase_l1, "ld.global.ca.u64")
CHASE(chase_past_l1, "ld.global.cg.u64")

constexpr int SHARED_LINES = 256;

extern "C" __global__ void chase_shared(unsigned* place, int hops) {
    __shared__ unsigned lines[SHARED_LINES];
    const unsigned base = (unsigned)__cvta_generic_to_shared(lines);
    // 37 has no factor in common with 256: one cycle through all of them.
    for (int i = 0; i < SHARED_LINES; ++i) lines[i] = base + 4 * ((i + 37) % SHARED_LINES);
    unsigned at = base;
    for (int hop = 0; hop < hops; hop += 8) {
        _Pragma("unroll") for (int i = 0; i < 8; ++i) {
            asm volatile("ld.shared.u32 %0, [%0];" : "+r"(at));
        }
    }
    *place = at;
}
