#include "trace_events.h"

#include <stdlib.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* Deeper values and numbers of more digits are left to Python. */
#define DEEPEST 200
#define MOST_DIGITS 18
/* Elements of a block that are not read here. With more the trace is an old one, or no trace. */
#define MOST_OTHERS 4096
/* Microseconds: collectors/kineto/events.py. */
#define TIME_LIMIT 4000000000000000LL
#define DURATION_LIMIT 1000000000000000LL

enum {
    NAME, PROCESS, THREAD, START, DURATION, PHASE, CATEGORY, ARGS,
    COLLECTIVE, ELEMENTS_IN, ELEMENTS_OUT, DTYPE, GROUP, GROUP_SIZE,
    EXTERNAL_ID, SEQUENCE_NUMBER, FORWARD_THREAD, INPUT_DIMS, INPUT_TYPES, INPUT_STRIDES,
    CONCRETE_INPUTS, KERNEL_FILE,
    CORRELATION, KERNEL, DEVICE, CONTEXT, STREAM, REGISTERS, SHARED_MEMORY, DEVICE_BYTES, GRAPH_ID,
    GRAPH_NODE, ANNOTATED_NAME, ANNOTATION, SEQ,
    BYTES, TOTAL, RESERVED, ADDRESS, DEVICE_TYPE, DEVICE_ID,
    GRID_X, GRID_Y, GRID_Z, BLOCK_X, BLOCK_Y, BLOCK_Z,
    /* Not read from a key: when the event ended, and which kind of device work it is. */
    END, KIND,
    FIELDS
};

#define BIT(field) (UINT64_C(1) << (field))

typedef enum { INTEGER, STRING, RAW, SIZE, OTHER_SPELLING } Type;

typedef struct {
    const char *text;
    size_t length;
    Type type;
    int field;
} Key;

#define KEY(text, type, field) {text, sizeof(text) - 1, type, field}

/* Of `args`, by length. A key that differs in upper and lower case only is an older spelling. */
static const Key KEYS[] = {
    KEY("Seq", INTEGER, SEQ),
    KEY("grid", SIZE, GRID_X),
    KEY("name", STRING, ANNOTATED_NAME),
    KEY("Addr", INTEGER, ADDRESS),
    KEY("block", SIZE, BLOCK_X),
    KEY("dtype", STRING, DTYPE),
    KEY("bytes", INTEGER, DEVICE_BYTES),
    KEY("Bytes", INTEGER, BYTES),
    KEY("stream", INTEGER, STREAM),
    KEY("device", INTEGER, DEVICE),
    KEY("kernel", STRING, KERNEL),
    KEY("context", INTEGER, CONTEXT),
    KEY("graph id", INTEGER, GRAPH_ID),
    KEY("Device Id", INTEGER, DEVICE_ID),
    KEY("Input Dims", RAW, INPUT_DIMS),
    KEY("Input type", RAW, INPUT_TYPES),
    KEY("Group size", INTEGER, GROUP_SIZE),
    KEY("annotation", STRING, ANNOTATION),
    KEY("External id", INTEGER, EXTERNAL_ID),
    KEY("correlation", INTEGER, CORRELATION),
    KEY("Device Type", INTEGER, DEVICE_TYPE),
    KEY("kernel_file", STRING, KERNEL_FILE),
    KEY("Input types", OTHER_SPELLING, INPUT_TYPES),
    KEY("Fwd thread id", INTEGER, FORWARD_THREAD),
    KEY("Input Strides", RAW, INPUT_STRIDES),
    KEY("In msg nelems", INTEGER, ELEMENTS_IN),
    KEY("graph node id", INTEGER, GRAPH_NODE),
    KEY("shared memory", INTEGER, SHARED_MEMORY),
    KEY("Out msg nelems", INTEGER, ELEMENTS_OUT),
    KEY("Total Reserved", INTEGER, RESERVED),
    KEY("Sequence number", INTEGER, SEQUENCE_NUMBER),
    KEY("Concrete Inputs", RAW, CONCRETE_INPUTS),
    KEY("Collective name", STRING, COLLECTIVE),
    KEY("Total Allocated", INTEGER, TOTAL),
    KEY("Process Group Name", STRING, GROUP),
    KEY("registers per thread", INTEGER, REGISTERS),
};
#define KEY_COUNT (sizeof(KEYS) / sizeof(KEYS[0]))
/* Of those in KEYS. */
#define LONGEST_KEY 20

/* For each length the first key that is as long or longer: most keys are compared with few. */
typedef struct {
    unsigned char first[LONGEST_KEY + 2];
} KeysByLength;

typedef struct {
    Column column;
    int field;
} Cell;

#define NAMED(name, field) {{name, NAMES}, field}
#define TEXT(name, field) {{name, TEXTS}, field}
#define NUMBER(name, field) {{name, INTEGERS}, field}
#define EVENT NAMED("name", NAME), NUMBER("process", PROCESS), NUMBER("thread", THREAD), \
    NUMBER("start_ns", START)
#define COMPLETE EVENT, NUMBER("end_ns", END)
#define OF_COLLECTIVE NAMED("collective", COLLECTIVE), NUMBER("elements_in", ELEMENTS_IN), \
    NUMBER("elements_out", ELEMENTS_OUT), NAMED("dtype", DTYPE), NAMED("group", GROUP), \
    NUMBER("group_size", GROUP_SIZE)
#define SIZES NUMBER("grid_x", GRID_X), NUMBER("grid_y", GRID_Y), NUMBER("grid_z", GRID_Z), \
    NUMBER("block_x", BLOCK_X), NUMBER("block_y", BLOCK_Y), NUMBER("block_z", BLOCK_Z)

/* The tables of collectors/kineto/tables.py. */
static const Cell OPS_CELLS[] = {
    COMPLETE, NUMBER("external_id", EXTERNAL_ID), NUMBER("sequence", SEQUENCE_NUMBER),
    NUMBER("forward_thread", FORWARD_THREAD), TEXT("input_dims", INPUT_DIMS),
    TEXT("input_types", INPUT_TYPES), TEXT("input_strides", INPUT_STRIDES),
    TEXT("concrete_inputs", CONCRETE_INPUTS), NAMED("kernel_file", KERNEL_FILE), OF_COLLECTIVE,
};
static const Cell KERNELS_CELLS[] = {
    COMPLETE, NUMBER("kind", KIND), NUMBER("device", DEVICE), NUMBER("context", CONTEXT),
    NUMBER("stream", STREAM), NUMBER("correlation", CORRELATION), NUMBER("registers", REGISTERS),
    NUMBER("shared_memory", SHARED_MEMORY), NUMBER("bytes", DEVICE_BYTES),
    NUMBER("graph_id", GRAPH_ID), NUMBER("graph_node", GRAPH_NODE),
    NAMED("annotated_name", ANNOTATED_NAME), NAMED("annotation", ANNOTATION),
    NUMBER("sequence", SEQ), OF_COLLECTIVE, SIZES,
};
static const Cell LAUNCHES_CELLS[] = {
    COMPLETE, NUMBER("correlation", CORRELATION), NAMED("kernel", KERNEL), SIZES,
};
static const Cell RANGES_CELLS[] = {
    COMPLETE, TEXT("input_dims", INPUT_DIMS), TEXT("input_types", INPUT_TYPES),
};
static const Cell COMPLETE_CELLS[] = {COMPLETE};
static const Cell ALLOCATIONS_CELLS[] = {
    EVENT, NUMBER("bytes", BYTES), NUMBER("total", TOTAL), NUMBER("reserved", RESERVED),
    NUMBER("address", ADDRESS), NUMBER("device_type", DEVICE_TYPE), NUMBER("device", DEVICE_ID),
};

typedef struct {
    const char *name;
    const Cell *cells;
    int width;
} Table;

#define TABLE(name, cells) {name, cells, (int)(sizeof(cells) / sizeof(cells[0]))}
static const Table TABLE_OF[TABLES] = {
    [OPS] = TABLE("ops", OPS_CELLS),
    [KERNELS] = TABLE("kernels", KERNELS_CELLS),
    [LAUNCHES] = TABLE("launches", LAUNCHES_CELLS),
    [RANGES] = TABLE("ranges", RANGES_CELLS),
    [RECORDINGS] = TABLE("recordings", COMPLETE_CELLS),
    [FRAMES] = TABLE("frames", COMPLETE_CELLS),
    [ALLOCATIONS] = TABLE("allocations", ALLOCATIONS_CELLS),
};

typedef struct {
    const char *text;
    size_t length;
    /* One of the tables, or TABLES for events that are not used. */
    int table;
    /* Of kernels: 0 kernel, 1 memcpy, 2 memset. */
    int kind;
} Category;

#define CATEGORY_OF(text, table, kind) {text, sizeof(text) - 1, table, kind}
/* collectors/kineto/events.py: those that are read, and IGNORED_CATEGORIES. */
static const Category CATEGORIES[] = {
    CATEGORY_OF("cpu_op", OPS, 0),
    CATEGORY_OF("cuda_runtime", LAUNCHES, 0),
    CATEGORY_OF("cuda_driver", LAUNCHES, 0),
    CATEGORY_OF("kernel", KERNELS, 0),
    CATEGORY_OF("gpu_memcpy", KERNELS, 1),
    CATEGORY_OF("gpu_memset", KERNELS, 2),
    CATEGORY_OF("python_function", FRAMES, 0),
    CATEGORY_OF("ac2g", TABLES, 0),
    CATEGORY_OF("fwdbwd", TABLES, 0),
    CATEGORY_OF("cpu_instant_event", ALLOCATIONS, 0),
    CATEGORY_OF("user_annotation", RANGES, 0),
    CATEGORY_OF("Trace", RECORDINGS, 0),
    CATEGORY_OF("async_cpu_to_gpu", TABLES, 0),
    CATEGORY_OF("async", TABLES, 0),
    CATEGORY_OF("gpu_user_annotation", TABLES, 0),
    CATEGORY_OF("cuda_sync", TABLES, 0),
    CATEGORY_OF("cuda_event", TABLES, 0),
    CATEGORY_OF("cuda_profiler_range", TABLES, 0),
    CATEGORY_OF("hardware_counters", TABLES, 0),
    CATEGORY_OF("overhead", TABLES, 0),
    CATEGORY_OF("gpuprof", TABLES, 0),
};

typedef struct {
    int64_t number[FIELDS];
    Span text[FIELDS];
    /* Fields that have a value, and those whose value is of another type than Kineto's. */
    uint64_t known, unusual;
    /* Some key of `args` is spelled as in older traces. */
    bool older;
    const KeysByLength *keys;
} Event;

/* Scanning. Every function takes where a value or its rest starts and returns where it ends, NULL
 * where it is no JSON. The zero byte behind the text ends every loop: it is nowhere allowed. */

static const char *after_space(const char *p)
{
    while (*p == ' ' || *p == '\n' || *p == '\t' || *p == '\r')
        p++;
    return p;
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The code unit of the four digits at `p`, -1 where they are none. */
static int code_unit(const char *p)
{
    int unit = 0;
    for (int i = 0; i < 4; i++) {
        int digit = hex(p[i]);
        if (digit < 0)
            return -1;
        unit = unit << 4 | digit;
    }
    return unit;
}

static const char *after_escape(const char *p)
{
    if (*p && strchr("\"\\/bfnrt", *p))
        return p + 1;
    if (*p != 'u')
        return NULL;
    int unit = code_unit(p + 1);
    if (unit < 0 || (unit & 0xFC00) == 0xDC00)
        return NULL;
    p += 5;
    if ((unit & 0xFC00) != 0xD800)
        return p;
    /* The first half of a pair. */
    if (p[0] != '\\' || p[1] != 'u')
        return NULL;
    unit = code_unit(p + 2);
    return unit >= 0 && (unit & 0xFC00) == 0xDC00 ? p + 6 : NULL;
}

/* The first quote, backslash or control character at or behind `p`, or a place before it. */
#if defined(__SSE2__)
static const char *near_special(const char *p, const char *end)
{
    const __m128i quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\');
    const __m128i last_control = _mm_set1_epi8(0x1F);
    for (; end - p >= 16; p += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)p);
        __m128i marked = _mm_cmpeq_epi8(bytes, quote);
        marked = _mm_or_si128(marked, _mm_cmpeq_epi8(bytes, backslash));
        marked = _mm_or_si128(marked, _mm_cmpeq_epi8(_mm_min_epu8(bytes, last_control), bytes));
        int special = _mm_movemask_epi8(marked);
        if (special)
            return p + __builtin_ctz((unsigned)special);
    }
    return p;
}
#else
#define EACH_BYTE UINT64_C(0x0101010101010101)
#define HIGH_BITS (EACH_BYTE * 0x80)

/* The high bit of each byte of `word` that is `byte`; bytes above the lowest one may be wrong. */
static uint64_t equal_bytes(uint64_t word, unsigned char byte)
{
    word ^= EACH_BYTE * byte;
    return (word - EACH_BYTE) & ~word & HIGH_BITS;
}

static const char *near_special(const char *p, const char *end)
{
    for (; end - p >= 8; p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        uint64_t control = (word - EACH_BYTE * 0x20) & ~word & HIGH_BITS;
        if (equal_bytes(word, '"') | equal_bytes(word, '\\') | control)
            return p;
    }
    return p;
}
#endif

/* `p` is behind the opening quote; the result is at the closing one. */
static const char *string_end(const char *p, const char *end)
{
    for (;;) {
        p = near_special(p, end);
        while (*p != '"' && *p != '\\') {
            if ((unsigned char)*p < 0x20)
                return NULL;
            p++;
        }
        if (*p == '"')
            return p;
        p = after_escape(p + 1);
        if (!p)
            return NULL;
    }
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static const char *after_digits(const char *p)
{
    if (!is_digit(*p))
        return NULL;
    while (is_digit(*p))
        p++;
    return p;
}

static const char *after_number(const char *p)
{
    p += *p == '-';
    p = *p == '0' ? p + 1 : after_digits(p);
    if (p && *p == '.')
        p = after_digits(p + 1);
    if (p && (*p | 0x20) == 'e') {
        p++;
        p = after_digits(p + (*p == '+' || *p == '-'));
    }
    return p;
}

static const char *after_word(const char *p, const char *word)
{
    size_t length = strlen(word);
    return strncmp(p, word, length) ? NULL : p + length;
}

/* A key and its colon: where the value starts. */
static const char *after_key(const char *p, const char *end, Span *key)
{
    if (*p != '"')
        return NULL;
    const char *quote = string_end(p + 1, end);
    if (!quote)
        return NULL;
    *key = (Span){p + 1, (size_t)(quote - p - 1)};
    p = after_space(quote + 1);
    return *p == ':' ? after_space(p + 1) : NULL;
}

/* `p` is behind a value: where the next one starts, or behind `close`, which sets `over`. */
static const char *after_comma(const char *p, char close, bool *over)
{
    p = after_space(p);
    *over = *p == close;
    if (*over)
        return p + 1;
    return *p == ',' ? after_space(p + 1) : NULL;
}

static const char *after_value(const char *p, const char *end, int depth);

static const char *after_items(const char *p, const char *end, int depth)
{
    bool keyed = *p == '{', over = false;
    char close = keyed ? '}' : ']';
    if (depth >= DEEPEST)
        return NULL;
    p = after_space(p + 1);
    if (*p == close)
        return p + 1;
    while (p && !over) {
        Span key;
        if (keyed)
            p = after_key(p, end, &key);
        if (p)
            p = after_value(p, end, depth + 1);
        if (p)
            p = after_comma(p, close, &over);
    }
    return p;
}

static const char *after_value(const char *p, const char *end, int depth)
{
    switch (*p) {
    case '"':
        p = string_end(p + 1, end);
        return p ? p + 1 : NULL;
    case '{':
    case '[':
        return after_items(p, end, depth);
    case 't':
        return after_word(p, "true");
    case 'f':
        return after_word(p, "false");
    case 'n':
        return after_word(p, "null");
    default:
        return after_number(p);
    }
}

/* An integer of at most 18 digits; NULL also where the number is another one. */
static const char *after_integer(const char *p, int64_t *number)
{
    bool negative = *p == '-';
    p += negative;
    const char *first = p;
    int64_t value = 0;
    while (is_digit(*p) && p - first < MOST_DIGITS)
        value = value * 10 + (*p++ - '0');
    if (p == first || (*first == '0' && p - first > 1))
        return NULL;
    if (is_digit(*p) || *p == '.' || (*p | 0x20) == 'e')
        return NULL;
    *number = negative ? -value : value;
    return p;
}

/* Microseconds, whole or with decimals, as nanoseconds rounded half to even; NULL also beyond
 * `limit` microseconds and where the number has another notation. */
static const char *after_time(const char *p, int64_t limit, int64_t *nanoseconds)
{
    bool negative = *p == '-';
    p += negative;
    const char *first = p;
    int64_t value = 0;
    while (is_digit(*p) && p - first < MOST_DIGITS)
        value = value * 10 + (*p++ - '0');
    if (p == first || (*first == '0' && p - first > 1) || is_digit(*p) || value > limit)
        return NULL;
    bool at_limit = value == limit, beyond = false;
    value *= 1000;
    if (*p == '.') {
        p++;
        if (!is_digit(*p))
            return NULL;
        int64_t unit = 100;
        int next = 0;
        bool more = false;
        for (int place = 0; is_digit(*p); place++, p++) {
            int digit = *p - '0';
            beyond |= digit > 0;
            if (place < 3) {
                value += digit * unit;
                unit /= 10;
            } else if (place == 3) {
                next = digit;
            } else {
                more |= digit > 0;
            }
        }
        if (next > 5 || (next == 5 && (more || value & 1)))
            value++;
    }
    if ((at_limit && beyond) || (*p | 0x20) == 'e')
        return NULL;
    *nanoseconds = negative ? -value : value;
    return p;
}

/* A process or thread: an integer, or letters and spaces before one ("stream 7"). */
static const char *after_identifier(const char *p, int64_t *number)
{
    if (*p != '"')
        return after_integer(p, number);
    p++;
    while (*p == ' ' || ((*p | 0x20) >= 'a' && (*p | 0x20) <= 'z'))
        p++;
    const char *first = p;
    int64_t value = 0;
    while (is_digit(*p) && p - first < MOST_DIGITS)
        value = value * 10 + (*p++ - '0');
    if (p == first || *p != '"')
        return NULL;
    *number = value;
    return p + 1;
}

static const char *after_size(const char *p, int64_t sizes[3])
{
    if (*p != '[')
        return NULL;
    for (int axis = 0; axis < 3; axis++) {
        p = after_integer(after_space(p + 1), &sizes[axis]);
        if (!p)
            return NULL;
        p = after_space(p);
        if (*p != (axis < 2 ? ',' : ']'))
            return NULL;
    }
    return p + 1;
}

static bool is_key(Span key, const char *text, size_t length)
{
    return key.length == length && !memcmp(key.at, text, length);
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

static KeysByLength keys_by_length(void)
{
    KeysByLength found;
    size_t i = 0;
    for (size_t length = 0; length < sizeof(found.first); length++) {
        while (i < KEY_COUNT && KEYS[i].length < length)
            i++;
        found.first[length] = (unsigned char)i;
    }
    return found;
}

static bool is_key_but_for_case(Span key, const Key *known)
{
    for (size_t i = 0; i < key.length; i++)
        if (lower(key.at[i]) != lower(known->text[i]))
            return false;
    return true;
}

/* The key of `args`, NULL where it is not read. */
static const Key *known_key(Span key, Event *event)
{
    if (key.length <= LONGEST_KEY) {
        size_t first = event->keys->first[key.length], behind = event->keys->first[key.length + 1];
        for (size_t i = first; i < behind; i++)
            if (KEYS[i].text[0] == key.at[0] && !memcmp(KEYS[i].text, key.at, key.length))
                return &KEYS[i];
        for (size_t i = first; i < behind; i++)
            event->older |= is_key_but_for_case(key, &KEYS[i]);
    }
    /* With an escape it may be any key. */
    event->older |= memchr(key.at, '\\', key.length) != NULL;
    return NULL;
}

static const char *after_argument(const char *p, const char *end, const Key *key, Event *event)
{
    uint64_t bit = BIT(key->field);
    const char *after = NULL;
    if (key->type == OTHER_SPELLING) {
        event->older = true;
    } else if (key->type == RAW) {
        after = after_value(p, end, 2);
        if (!after)
            return NULL;
        event->text[key->field] = (Span){p, (size_t)(after - p)};
        event->known |= bit;
        return after;
    } else if (*p == 'n') {
        event->known &= ~bit;
        return after_word(p, "null");
    } else if (key->type == INTEGER) {
        after = after_integer(p, &event->number[key->field]);
    } else if (key->type == SIZE) {
        after = after_size(p, &event->number[key->field]);
    } else if (*p == '"') {
        const char *quote = string_end(p + 1, end);
        if (!quote)
            return NULL;
        after = quote + 1;
        event->text[key->field] = (Span){p, (size_t)(after - p)};
    }
    if (after) {
        event->known |= bit;
        return after;
    }
    event->unusual |= bit;
    return after_value(p, end, 2);
}

static const char *after_args(const char *p, const char *end, Event *event)
{
    if (*p == 'n' && !(event->known & BIT(ARGS)))
        return after_word(p, "null");
    if (*p != '{' || event->known & BIT(ARGS)) {
        event->unusual |= BIT(ARGS);
        return after_value(p, end, 1);
    }
    event->known |= BIT(ARGS);
    p = after_space(p + 1);
    if (*p == '}')
        return p + 1;
    bool over = false;
    while (p && !over) {
        Span name;
        p = after_key(p, end, &name);
        if (p) {
            const Key *key = known_key(name, event);
            p = key ? after_argument(p, end, key, event) : after_value(p, end, 2);
        }
        if (p)
            p = after_comma(p, '}', &over);
    }
    return p;
}

static int event_field(Span key)
{
    static const struct {
        const char *text;
        size_t length;
        int field;
    } FIELD_OF[] = {
        {"ph", 2, PHASE},  {"ts", 2, START}, {"cat", 3, CATEGORY}, {"pid", 3, PROCESS},
        {"tid", 3, THREAD}, {"dur", 3, DURATION}, {"name", 4, NAME}, {"args", 4, ARGS},
    };
    for (size_t i = 0; i < sizeof(FIELD_OF) / sizeof(FIELD_OF[0]); i++)
        if (is_key(key, FIELD_OF[i].text, FIELD_OF[i].length))
            return FIELD_OF[i].field;
    return FIELDS;
}

static const char *after_field(const char *p, const char *end, int field, Event *event)
{
    const char *after = NULL;
    int64_t *number = &event->number[field];
    switch (field) {
    case ARGS:
        return after_args(p, end, event);
    case START:
        after = after_time(p, TIME_LIMIT, number);
        break;
    case DURATION:
        after = after_time(p, DURATION_LIMIT, number);
        break;
    case PROCESS:
    case THREAD:
        after = after_identifier(p, number);
        break;
    default:
        if (*p == '"') {
            const char *quote = string_end(p + 1, end);
            if (!quote)
                return NULL;
            after = quote + 1;
            event->text[field] = (Span){p, (size_t)(after - p)};
        }
    }
    if (after) {
        event->known |= BIT(field);
        return after;
    }
    event->unusual |= BIT(field);
    return after_value(p, end, 1);
}

static const char *after_event(const char *p, const char *end, Event *event)
{
    event->known = event->unusual = 0;
    event->older = false;
    p = after_space(p + 1);
    if (*p == '}')
        return p + 1;
    bool over = false;
    while (p && !over) {
        Span key;
        p = after_key(p, end, &key);
        if (p) {
            int field = event_field(key);
            /* With an escape it may be any key. */
            if (field == FIELDS)
                event->older |= memchr(key.at, '\\', key.length) != NULL;
            p = field == FIELDS ? after_value(p, end, 1) : after_field(p, end, field, event);
        }
        if (p)
            p = after_comma(p, '}', &over);
    }
    return p;
}

/* Keeping. Every function returns false where there is no memory. */

/* `items`, moved where one more has no room; NULL where there is no memory. */
static void *with_room(void *items, size_t count, size_t *capacity, size_t item_size)
{
    if (count < *capacity)
        return items;
    size_t larger = *capacity ? 2 * *capacity : 64;
    void *moved = realloc(items, larger * item_size);
    if (moved)
        *capacity = larger;
    return moved;
}

static bool add_span(Spans *spans, Span span)
{
    Span *items = with_room(spans->items, spans->count, &spans->capacity, sizeof(Span));
    if (!items)
        return false;
    spans->items = items;
    spans->items[spans->count++] = span;
    return true;
}

static uint64_t hash_of(Span text)
{
    /* Where the text lies differs from run to run, so that nobody can prepare collisions. */
    uint64_t hash = (uint64_t)(uintptr_t)&CATEGORIES ^ text.length;
    const char *p = text.at;
    size_t left = text.length;
    for (; left; left -= left < 8 ? left : 8, p += 8) {
        uint64_t word = 0;
        memcpy(&word, p, left < 8 ? left : 8);
        hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 29;
    }
    return hash * UINT64_C(0xBF58476D1CE4E5B9) >> 16;
}

static bool grow(Interned *interned)
{
    size_t larger = interned->capacity ? 4 * interned->capacity : 1024;
    uint32_t *slots = calloc(larger, sizeof(uint32_t));
    if (!slots)
        return false;
    for (size_t i = 0; i < interned->items.count; i++) {
        size_t slot = hash_of(interned->items.items[i]) & (larger - 1);
        while (slots[slot])
            slot = (slot + 1) & (larger - 1);
        slots[slot] = (uint32_t)(i + 1);
    }
    free(interned->slots);
    interned->slots = slots;
    interned->capacity = larger;
    return true;
}

static bool intern(Interned *interned, Span text, int64_t *code)
{
    if (2 * (interned->items.count + 1) > interned->capacity && !grow(interned))
        return false;
    size_t slot = hash_of(text) & (interned->capacity - 1);
    while (interned->slots[slot]) {
        Span known = interned->items.items[interned->slots[slot] - 1];
        if (is_key(known, text.at, text.length)) {
            *code = interned->slots[slot];
            return true;
        }
        slot = (slot + 1) & (interned->capacity - 1);
    }
    if (!add_span(&interned->items, text))
        return false;
    *code = interned->slots[slot] = (uint32_t)interned->items.count;
    return true;
}

/* The field whose bit tells of the cell: sizes have one for all three axes. */
static int told_by(int field)
{
    if (field == GRID_Y || field == GRID_Z)
        return GRID_X;
    if (field == BLOCK_Y || field == BLOCK_Z)
        return BLOCK_X;
    return field;
}

static bool add_row(Events *events, int table, const Event *event)
{
    const Table *to = &TABLE_OF[table];
    Rows *rows = &events->tables[table];
    size_t row_size = (size_t)to->width * sizeof(int64_t);
    int64_t *cells = with_room(rows->cells, rows->rows, &rows->capacity, row_size);
    if (!cells)
        return false;
    rows->cells = cells;
    cells += rows->rows++ * (size_t)to->width;
    for (int place = 0; place < to->width; place++) {
        int field = to->cells[place].field, content = to->cells[place].column.content;
        bool known = event->known & BIT(told_by(field));
        cells[place] = content == INTEGERS ? NO_VALUE : 0;
        if (!known)
            continue;
        if (content == INTEGERS)
            cells[place] = event->number[field];
        else if (!intern(content == NAMES ? &events->names : &events->texts, event->text[field],
                         &cells[place]))
            return false;
    }
    return true;
}

static const Category *category_of(const Event *event)
{
    if (!(event->known & BIT(CATEGORY)))
        return NULL;
    Span quoted = event->text[CATEGORY];
    Span text = {quoted.at + 1, quoted.length - 2};
    for (size_t i = 0; i < sizeof(CATEGORIES) / sizeof(CATEGORIES[0]); i++)
        if (is_key(text, CATEGORIES[i].text, CATEGORIES[i].length))
            return &CATEGORIES[i];
    return NULL;
}

static bool is_phase(const Event *event, const char *quoted)
{
    return event->known & BIT(PHASE) && is_key(event->text[PHASE], quoted, 3);
}

/* Whether the event has all that its table needs, in the types that Kineto writes. */
static bool is_usual(const Event *event, int table)
{
    uint64_t needed = BIT(NAME) | BIT(PROCESS) | BIT(THREAD) | BIT(START);
    if (table != ALLOCATIONS)
        needed |= BIT(DURATION);
    uint64_t used = needed | BIT(PHASE) | BIT(CATEGORY);
    if (table != RECORDINGS && table != FRAMES)
        used |= BIT(ARGS);
    for (int place = 0; place < TABLE_OF[table].width; place++)
        used |= BIT(told_by(TABLE_OF[table].cells[place].field));
    return !event->older && (event->known & needed) == needed && !(event->unusual & used) &&
           is_phase(event, table == ALLOCATIONS ? "\"i\"" : "\"X\"");
}

static bool keep(Events *events, Event *event, Span text)
{
    const Category *category = category_of(event);
    if (!category || event->unusual & BIT(CATEGORY))
        return add_span(&events->others, text);
    if (category->table == TABLES)
        return true;
    if (!is_usual(event, category->table))
        return add_span(&events->others, text);
    event->number[END] = event->number[START] + event->number[DURATION];
    event->number[KIND] = category->kind;
    event->known |= BIT(END) | BIT(KIND);
    return add_row(events, category->table, event);
}

Outcome read_events(const char *text, size_t length, Events *events)
{
    const char *end = text + length;
    Event event;
    memset(events, 0, sizeof(*events));
    memset(&event, 0, sizeof(event));
    const KeysByLength keys = keys_by_length();
    event.keys = &keys;
    const char *p = after_space(text);
    bool over = p >= end;
    while (!over) {
        bool is_object = *p == '{';
        const char *after = is_object ? after_event(p, end, &event) : after_value(p, end, 1);
        /* What goes on behind the end is no element of these, whatever stands there. */
        if (!after || after > end)
            return NOT_READ;
        Span element = {p, (size_t)(after - p)};
        if (!(is_object ? keep(events, &event, element) : add_span(&events->others, element)))
            return NO_MEMORY;
        if (events->others.count > MOST_OTHERS)
            return NOT_READ;
        p = after_space(after);
        over = p >= end;
        if (!over && *p != ',')
            return NOT_READ;
        if (!over)
            p = after_space(p + 1);
    }
    return READ;
}

void free_events(Events *events)
{
    free(events->names.items.items);
    free(events->names.slots);
    free(events->texts.items.items);
    free(events->texts.slots);
    free(events->others.items);
    for (int table = 0; table < TABLES; table++)
        free(events->tables[table].cells);
}

const char *table_name(int table)
{
    return TABLE_OF[table].name;
}

int table_width(int table)
{
    return TABLE_OF[table].width;
}

Column table_column(int table, int place)
{
    return TABLE_OF[table].cells[place].column;
}
