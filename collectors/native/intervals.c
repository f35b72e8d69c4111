#include "intervals.h"

#include <stdlib.h>

/* The innermost open interval of each thread, -1 for none: a table that probes linearly. `number`
 * counts the threads before it. */
typedef struct {
    int64_t thread, top, number;
    bool used;
} Stack;

typedef struct {
    Stack *items;
    size_t count, capacity;
} Stacks;

static size_t place_of(const Stacks *stacks, int64_t thread)
{
    size_t mask = stacks->capacity - 1;
    size_t place = ((uint64_t)thread * UINT64_C(0x9E3779B97F4A7C15) >> 32) & mask;
    while (stacks->items[place].used && stacks->items[place].thread != thread)
        place = (place + 1) & mask;
    return place;
}

static bool grow(Stacks *stacks)
{
    Stacks larger = {NULL, stacks->count, stacks->capacity ? 2 * stacks->capacity : 64};
    larger.items = calloc(larger.capacity, sizeof(Stack));
    if (!larger.items)
        return false;
    for (size_t i = 0; i < stacks->capacity; i++)
        if (stacks->items[i].used)
            larger.items[place_of(&larger, stacks->items[i].thread)] = stacks->items[i];
    free(stacks->items);
    *stacks = larger;
    return true;
}

static Stack *stack_of(Stacks *stacks, int64_t thread)
{
    if (2 * stacks->count >= stacks->capacity && !grow(stacks))
        return NULL;
    Stack *stack = &stacks->items[place_of(stacks, thread)];
    if (!stack->used) {
        *stack = (Stack){thread, -1, (int64_t)stacks->count++, true};
    }
    return stack;
}

bool parents(const int64_t *threads, const int64_t *starts, const int64_t *ends, size_t count,
             int64_t *parent)
{
    Stacks stacks = {NULL, 0, 0};
    Stack *stack = NULL;
    /* When each interval ends, at the latest with the one around it. */
    int64_t *until = malloc((count ? count : 1) * sizeof(int64_t));
    bool done = until != NULL;
    for (size_t i = 0; done && i < count; i++) {
        if (!stack || stack->thread != threads[i])
            stack = stack_of(&stacks, threads[i]);
        if (!stack) {
            done = false;
            break;
        }
        while (stack->top >= 0 && until[stack->top] <= starts[i])
            stack->top = parent[stack->top];
        parent[i] = stack->top;
        until[i] = stack->top >= 0 && until[stack->top] < ends[i] ? until[stack->top] : ends[i];
        stack->top = (int64_t)i;
    }
    free(until);
    free(stacks.items);
    return done;
}

bool are_above(const int64_t *parent, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (parent[i] < -1 || parent[i] >= (int64_t)i)
            return false;
    return true;
}

void inherit(const int64_t *codes, const int64_t *parent, size_t count, int64_t *code)
{
    for (size_t i = 0; i < count; i++)
        code[i] = codes[i] || parent[i] < 0 ? codes[i] : code[parent[i]];
}

/* The intervals thread by thread: those of number n are at first[n] to first[n + 1]. */
typedef struct {
    /* The number of each thread is in `top`. */
    Stacks numbers;
    size_t *first;
    int64_t *rows, *starts;
} Threads;

static void free_threads(Threads *threads)
{
    free(threads->numbers.items);
    free(threads->first);
    free(threads->rows);
    free(threads->starts);
}

/* The number of the thread of each interval. */
static bool number_threads(const Intervals *intervals, Stacks *numbers, size_t *number)
{
    Stack *stack = NULL;
    for (size_t i = 0; i < intervals->count; i++) {
        if (!stack || stack->thread != intervals->threads[i])
            stack = stack_of(numbers, intervals->threads[i]);
        if (!stack)
            return false;
        if (stack->top < 0)
            stack->top = (int64_t)numbers->count - 1;
        number[i] = (size_t)stack->top;
    }
    return true;
}

static bool by_thread(const Intervals *intervals, Threads *threads)
{
    size_t count = intervals->count, room = count ? count : 1;
    size_t *number = malloc(room * sizeof(size_t));
    bool done = number && number_threads(intervals, &threads->numbers, number);
    threads->first = calloc(threads->numbers.count + 1, sizeof(size_t));
    threads->rows = malloc(room * sizeof(int64_t));
    threads->starts = malloc(room * sizeof(int64_t));
    if (done && threads->first && threads->rows && threads->starts) {
        for (size_t i = 0; i < count; i++)
            threads->first[number[i]]++;
        /* Each is the end of its thread, and its begin when all rows are placed from behind. */
        for (size_t n = 0; n < threads->numbers.count; n++)
            threads->first[n + 1] += threads->first[n];
        for (size_t i = count; i-- > 0;) {
            size_t place = --threads->first[number[i]];
            threads->rows[place] = (int64_t)i;
            threads->starts[place] = intervals->starts[i];
        }
    } else {
        done = false;
    }
    free(number);
    return done;
}

/* How many of `starts`, in order, are at or before `time`; `near` is a place to look at first. */
static size_t begun(const int64_t *starts, size_t count, int64_t time, size_t near)
{
    size_t low = 0, high = count;
    if (near < count) {
        if (starts[near] > time) {
            high = near;
        } else {
            /* Points mostly follow each other: doubling steps from the one before. */
            size_t step = 1;
            low = near + 1;
            while (low + step <= count && starts[low + step - 1] <= time) {
                low += step;
                step *= 2;
            }
            high = low + step < count ? low + step : count;
        }
    }
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (starts[middle] <= time)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool innermost(const Intervals *intervals, const int64_t *threads, const int64_t *times,
               size_t points, int64_t *row)
{
    Threads split = {{NULL, 0, 0}, NULL, NULL, NULL};
    bool done = by_thread(intervals, &split);
    const Stack *stack = NULL;
    size_t near = 0;
    for (size_t i = 0; done && i < points; i++) {
        row[i] = -1;
        if (!split.numbers.count)
            continue;
        if (!stack || stack->thread != threads[i]) {
            stack = &split.numbers.items[place_of(&split.numbers, threads[i])];
            near = 0;
        }
        if (!stack->used) {
            stack = NULL;
            continue;
        }
        size_t first = split.first[stack->top], last = split.first[stack->top + 1];
        size_t found = begun(split.starts + first, last - first, times[i], near);
        if (!found)
            continue;
        near = found - 1;
        /* The last interval to start may have ended already: then one of those around it is it. */
        int64_t candidate = split.rows[first + near];
        while (candidate >= 0 && intervals->ends[candidate] <= times[i])
            candidate = intervals->parent[candidate];
        row[i] = candidate;
    }
    free_threads(&split);
    return done;
}

bool are_within(const Calls *calls, size_t names)
{
    for (size_t i = 0; i < calls->count; i++)
        if (calls->names[i] < 0 || (uint64_t)calls->names[i] >= names)
            return false;
    for (size_t i = 0; i < calls->chosen; i++)
        if (calls->order[i] < 0 || (uint64_t)calls->order[i] >= calls->count)
            return false;
    return true;
}

/* Numbers from damaged files may be too large: their sums wrap around, as numpy's do. */
static int64_t sum(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

static int64_t difference(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a - (uint64_t)b);
}

/* A call: the place of the one around it, and when it ends, at the latest with that. */
typedef struct {
    int64_t outer, until;
} Open;

/* The state of `call_times`: calls by their place in `order`, the innermost open one of each thread,
 * and the outermost open one of each thread and name. */
typedef struct {
    Open *open;
    Stacks threads, alike;
} CallTree;

/* Whether the call at `place`, which begins at `start`, is within another of its name. */
static bool is_within_its_like(CallTree *tree, int64_t key, size_t place, int64_t start, bool *within)
{
    Stack *outermost = stack_of(&tree->alike, key);
    if (!outermost)
        return false;
    /* No call ends after the one around it: what has not ended stands around this one. */
    *within = outermost->top >= 0 && tree->open[outermost->top].until > start;
    if (!*within)
        outermost->top = (int64_t)place;
    return true;
}

static bool add_call(const Calls *calls, size_t place, CallTree *tree, CallTimes *times)
{
    int64_t row = calls->order[place], name = calls->names[row];
    int64_t start = calls->starts[row], end = calls->ends[row];
    Stack *stack = stack_of(&tree->threads, calls->threads[row]);
    if (!stack)
        return false;
    while (stack->top >= 0 && tree->open[stack->top].until <= start)
        stack->top = tree->open[stack->top].outer;
    tree->open[place] = (Open){stack->top, end};
    if (stack->top >= 0) {
        const Open *around = &tree->open[stack->top];
        int64_t above = calls->order[stack->top], above_end = calls->ends[above];
        int64_t inside = difference(end < above_end ? end : above_end, start);
        int64_t *self_ns = &times->self_ns[calls->names[above]];
        *self_ns = difference(*self_ns, inside);
        if (around->until < end)
            tree->open[place].until = around->until;
    }
    bool within;
    int64_t key = stack->number * (int64_t)times->names + name;
    if (!is_within_its_like(tree, key, place, start, &within))
        return false;
    stack->top = (int64_t)place;
    int64_t length = difference(end, start);
    if (!times->calls[name]++)
        times->first[name] = (int64_t)place;
    times->self_ns[name] = sum(times->self_ns[name], length);
    if (!within)
        times->total_ns[name] = sum(times->total_ns[name], length);
    return true;
}

bool call_times(const Calls *calls, CallTimes *times)
{
    CallTree tree = {malloc((calls->chosen ? calls->chosen : 1) * sizeof(Open)), {NULL, 0, 0},
                     {NULL, 0, 0}};
    bool done = tree.open != NULL;
    for (size_t name = 0; name < times->names; name++) {
        times->calls[name] = times->total_ns[name] = times->self_ns[name] = 0;
        times->first[name] = (int64_t)calls->chosen;
    }
    for (size_t place = 0; done && place < calls->chosen; place++)
        done = add_call(calls, place, &tree, times);
    free(tree.open);
    free(tree.threads.items);
    free(tree.alike.items);
    return done;
}

typedef struct {
    int64_t key, row;
} Entry;

typedef struct {
    Entry *items;
    size_t count;
} Heap;

static void push(Heap *heap, Entry entry)
{
    size_t place = heap->count++;
    while (place && entry.key < heap->items[(place - 1) / 2].key) {
        heap->items[place] = heap->items[(place - 1) / 2];
        place = (place - 1) / 2;
    }
    heap->items[place] = entry;
}

static Entry pop(Heap *heap)
{
    Entry first = heap->items[0], moved = heap->items[--heap->count];
    size_t place = 0;
    for (;;) {
        size_t child = 2 * place + 1;
        if (child >= heap->count)
            break;
        if (child + 1 < heap->count && heap->items[child + 1].key < heap->items[child].key)
            child++;
        if (heap->items[child].key >= moved.key)
            break;
        heap->items[place] = heap->items[child];
        place = child;
    }
    heap->items[place] = moved;
    return first;
}

bool free_rows(const int64_t *starts, const int64_t *ends, size_t count, int64_t *row)
{
    /* Busy rows by when they end, and free ones by their number. */
    Heap busy = {malloc((count ? count : 1) * sizeof(Entry)), 0};
    Heap idle = {malloc((count ? count : 1) * sizeof(Entry)), 0};
    bool done = busy.items && idle.items;
    for (size_t i = 0; done && i < count; i++) {
        while (busy.count && busy.items[0].key <= starts[i]) {
            int64_t freed = pop(&busy).row;
            push(&idle, (Entry){freed, freed});
        }
        row[i] = idle.count ? pop(&idle).row : (int64_t)busy.count;
        push(&busy, (Entry){ends[i], row[i]});
    }
    free(busy.items);
    free(idle.items);
    return done;
}
