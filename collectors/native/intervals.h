/* Passes over sorted intervals and their trees. No Python: safe without the GIL. */
#ifndef GPUPROF_INTERVALS_H
#define GPUPROF_INTERVALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As `parents` in collectors/call_tree/nesting.py; false where there is no memory. */
bool parents(const int64_t *threads, const int64_t *starts, const int64_t *ends, size_t count,
             int64_t *parent);

/* Intervals as `innermost` in collectors/call_tree/nesting.py takes them. */
typedef struct {
    const int64_t *threads, *starts, *ends, *parent;
    size_t count;
} Intervals;

/* Whether every parent stands before its row, as those of `parents` do; else there may be circles. */
bool are_above(const int64_t *parent, size_t count);

/* As `innermost` in collectors/call_tree/nesting.py, of parents that `are_above`; false where there
 * is no memory. */
bool innermost(const Intervals *intervals, const int64_t *threads, const int64_t *times,
               size_t points, int64_t *row);

/* As `inherit` in collectors/call_tree/inheriting.py, of parents that `are_above`. */
void inherit(const int64_t *codes, const int64_t *parent, size_t count, int64_t *code);

/* Calls by name, and which of them to look at, in the order that `parents` needs. */
typedef struct {
    const int64_t *names, *threads, *starts, *ends;
    size_t count;
    const int64_t *order;
    size_t chosen;
} Calls;

/* Of each name as `call_times` in roofline/host/call_times.py, in this order; `names` entries each. */
typedef struct {
    int64_t *calls, *first, *total_ns, *self_ns;
    size_t names;
} CallTimes;

/* Whether every number of a call and of a name is in its array. */
bool are_within(const Calls *calls, size_t names);

/* Of calls that `are_within`; false where there is no memory. */
bool call_times(const Calls *calls, CallTimes *times);

/* As `free_rows` in roofline/timeline/rows.py; false where there is no memory. */
bool free_rows(const int64_t *starts, const int64_t *ends, size_t count, int64_t *row);

#endif
