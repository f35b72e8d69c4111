/* The events of one JSON array, as Kineto writes them, in columns. No Python: safe without the GIL.
 */
#ifndef GPUPROF_TRACE_EVENTS_H
#define GPUPROF_TRACE_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Stands for "no value" in a column of integers; no number of more than 18 digits is taken. */
#define NO_VALUE INT64_MIN

enum { OPS, KERNELS, LAUNCHES, RANGES, RECORDINGS, FRAMES, ALLOCATIONS, TABLES };
enum { INTEGERS, NAMES, TEXTS };

typedef struct {
    const char *at;
    size_t length;
} Span;

typedef struct {
    Span *items;
    size_t count, capacity;
} Spans;

/* Each distinct text once; its code is its place in `items` and 1. */
typedef struct {
    Spans items;
    uint32_t *slots;
    size_t capacity;
} Interned;

typedef struct {
    int64_t *cells;
    size_t rows, capacity;
} Rows;

typedef struct {
    /* JSON strings with their quotes, and other JSON values, as they are written. */
    Interned names, texts;
    Rows tables[TABLES];
    /* Elements of the array that another decoder has to look at. */
    Spans others;
} Events;

typedef enum { READ, NOT_READ, NO_MEMORY } Outcome;

/* What a column of a table is called and holds: INTEGERS, or codes of NAMES or TEXTS (0: none). */
typedef struct {
    const char *name;
    int content;
} Column;

/* The elements of a JSON array with commas between them, of which `text` begins with `length` bytes.
 * Somewhere behind them must be a zero byte. NOT_READ: they are not of a plain kind. */
Outcome read_events(const char *text, size_t length, Events *events);
void free_events(Events *events);

const char *table_name(int table);
/* The number of columns, and the column at `place`. */
int table_width(int table);
Column table_column(int table, int place);

#endif
