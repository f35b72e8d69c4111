"""Triton kernels over the symmetric memory of all ranks."""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"

import triton
import triton.language as tl


@triton.jit
def words_at(address):
    """The words at `address`, which is 32 bits wide to Triton where it fits into them."""
    return address.to(tl.int64).to(tl.pointer_type(tl.uint64))


@triton.jit
def line_up(signal_table, block, rank, RANKS: tl.constexpr):
    """Wait until this block of every rank has come here.

    Each pair of ranks has a word a block and direction, 0 at rest. A rank sets its word at every
    other, then waits for the others' words and clears them; release and acquire at the scope of
    the system order the memory traffic before and after.
    """
    # All threads of the block are done with what came before.
    tl.debug_barrier()
    pads = words_at(signal_table)
    mine = tl.load(pads + rank).to(tl.pointer_type(tl.int32))
    for other in range(RANKS):
        theirs = tl.load(pads + other).to(tl.pointer_type(tl.int32))
        word = theirs + block * RANKS + rank
        while tl.atomic_cas(word, 0, 1, sem="release", scope="sys") != 0:
            pass
    for other in range(RANKS):
        word = mine + block * RANKS + other
        while tl.atomic_cas(word, 1, 0, sem="acquire", scope="sys") != 1:
            pass
    tl.debug_barrier()


@triton.jit
def message_of(allocations, offset_bytes, other, like):
    """The message in the symmetric buffer of rank `other`, a pointer of `like`'s type."""
    address = tl.load(allocations + other) + offset_bytes
    return tl.multiple_of(address.to(like.dtype), 16)


@triton.jit
def sum_of_ranks(
    allocations, offset_bytes, offsets, mask, like, RANKS: tl.constexpr, BLOCK: tl.constexpr
):
    """The sum in float32 of the elements at `offsets` of all ranks' buffers of `like`'s type."""
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for other in tl.static_range(RANKS):
        data = message_of(allocations, offset_bytes, other, like)
        total += tl.load(data + offsets, mask=mask, other=0.0).to(tl.float32)
    return total


@triton.jit
def one_shot(
    buffer_table,
    offset_bytes,
    signal_table,
    out,
    elements,
    rank,
    RANKS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """out = the sum of all ranks' buffers, which this rank reads whole."""
    block = tl.program_id(0)
    line_up(signal_table, block, rank, RANKS)
    allocations = words_at(buffer_table)
    for start in range(block * BLOCK, elements, tl.num_programs(0) * BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < elements
        total = sum_of_ranks(allocations, offset_bytes, offsets, mask, out, RANKS, BLOCK)
        tl.store(out + offsets, total.to(out.dtype.element_ty), mask=mask)
    # No rank may put new data into its buffer while another still reads it.
    line_up(signal_table, block, rank, RANKS)


@triton.jit
def take(inbox, mask, EMPTY: tl.constexpr):
    """What another rank wrote at `inbox`, once all of it has come; leaves the words empty.

    `EMPTY` is the word that nobody sends, so data is its own signal. A volatile load is not served
    from this multiprocessor's cache.
    """
    words = tl.load(inbox, mask=mask, other=0, volatile=True)
    while tl.sum((words == EMPTY).to(tl.int32)) > 0:
        words = tl.load(inbox, mask=mask, other=0, volatile=True)
    tl.store(inbox, tl.full(words.shape, EMPTY, words.dtype), mask=mask)
    return words


@triton.jit
def sendable(source, mask, EMPTY: tl.constexpr):
    """The words of a message: what reads as `EMPTY`, which is -0.0, is sent as 0.0."""
    words = tl.load(source, mask=mask, other=0)
    return tl.where(words == EMPTY, tl.zeros_like(words), words)


@triton.jit
def one_shot_push(
    inbox_table,
    offset_bytes,
    source,
    out,
    elements,
    rank,
    RANKS: tl.constexpr,
    BLOCK: tl.constexpr,
    EMPTY: tl.constexpr,
):
    """out = the sum of all ranks' messages, which each rank writes into all others' inboxes.

    `source` is this rank's message as words of the size of its elements. `offset_bytes` behind each
    rank's allocation lies an inbox with room for a message of every rank, all of it empty.
    """
    stride = tl.num_programs(0) * BLOCK
    inboxes = words_at(inbox_table)
    for start in range(tl.program_id(0) * BLOCK, elements, stride):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < elements
        words = sendable(source + offsets, mask, EMPTY)
        for step in tl.static_range(1, RANKS):
            inbox = message_of(inboxes, offset_bytes, (rank + step) % RANKS, source)
            tl.store(inbox + rank * elements + offsets, words, mask=mask)
    mine = message_of(inboxes, offset_bytes, rank, source)
    for start in range(tl.program_id(0) * BLOCK, elements, stride):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < elements
        # In the order of the ranks, so that all get the same sum to the last bit.
        total = tl.zeros((BLOCK,), dtype=tl.float32)
        for other in tl.static_range(RANKS):
            if other == rank:
                words = sendable(source + offsets, mask, EMPTY)
            else:
                words = take(mine + other * elements + offsets, mask, EMPTY)
            total += words.to(out.dtype.element_ty, bitcast=True).to(tl.float32)
        tl.store(out + offsets, total.to(out.dtype.element_ty), mask=mask)


@triton.jit
def two_shot(
    buffer_table,
    offset_bytes,
    signal_table,
    like,
    share,
    rank,
    RANKS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Every rank's buffer = the sum of all; this rank sums its share and writes it to all.

    `like` is this rank's buffer, for its type.
    """
    block = tl.program_id(0)
    line_up(signal_table, block, rank, RANKS)
    allocations = words_at(buffer_table)
    for start in range(block * BLOCK, share, tl.num_programs(0) * BLOCK):
        within = start + tl.arange(0, BLOCK)
        mask = within < share
        offsets = rank * share + within
        total = sum_of_ranks(allocations, offset_bytes, offsets, mask, like, RANKS, BLOCK)
        for other in tl.static_range(RANKS):
            data = message_of(allocations, offset_bytes, other, like)
            tl.store(data + offsets, total.to(like.dtype.element_ty), mask=mask)
    # All shares have arrived.
    line_up(signal_table, block, rank, RANKS)
