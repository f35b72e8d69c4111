/* Passes over sorted intervals that need a stack or a heap. No Python: safe without the GIL. */
#ifndef GPUPROF_INTERVALS_H
#define GPUPROF_INTERVALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As `parents` in collectors/call_tree/nesting.py; false where there is no memory. */
bool parents(const int64_t *threads, const int64_t *starts, const int64_t *ends, size_t count,
             int64_t *parent);

/* As `free_rows` in roofline/timeline/rows.py; false where there is no memory. */
bool free_rows(const int64_t *starts, const int64_t *ends, size_t count, int64_t *row);

#endif
