#include "intervals.h"

#include <stdlib.h>

/* The innermost open interval of each thread, -1 for none: a table that probes linearly. */
typedef struct {
    int64_t thread, top;
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
        *stack = (Stack){thread, -1, true};
        stacks->count++;
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
