"""A bottleneck class: work on rows that are narrower than one memory transaction."""

from gpuprof.roofline.classes import MEMORY, BottleneckClass, ClassRule, JudgedWork

_TRANSACTION_BYTES = 64


def narrow_rows(work: JudgedWork) -> str | None:
    """Why memory-bound `work` is slow, where its rows explain that."""
    first = None if work.call is None else work.call.tensor(0)
    if work.kind != MEMORY or first is None or first.dtype is None or not first.shape:
        return None
    row_bytes = first.dtype.bytes_for(first.shape[-1])
    if row_bytes >= _TRANSACTION_BYTES:
        return None
    return f"a row has {row_bytes} bytes, a transaction {_TRANSACTION_BYTES}"


NARROW = ClassRule(
    row=BottleneckClass(
        name="narrow",
        meaning="rows are narrower than a memory transaction",
        part="below the roof, narrow rows",
        loss="rows are narrower than a memory transaction",
        has_roof=True,
        rare=True,
        mark="square",
        fill="stripes",
        light="#8a5a00",
        dark="#d9a441",
        terminal="yellow",
    ),
    applies=narrow_rows,
)
