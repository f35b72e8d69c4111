from typing import Literal

from gpuprof.collectors.call_tree.nesting import Integers

# Its name, what its bytes are (int64, or uint32 codes), and they.
Column = tuple[str, Literal["integers", "names", "texts"], bytes]

def read_events(
    buffer: bytes | bytearray, length: int, /
) -> tuple[list[bytes], list[bytes], dict[str, list[Column]], list[bytes]] | None: ...
def parents(threads: Integers, starts: Integers, ends: Integers, /) -> bytearray: ...
def innermost(
    threads: Integers,
    starts: Integers,
    ends: Integers,
    parent: Integers,
    at_threads: Integers,
    at_times: Integers,
    /,
) -> bytearray | None: ...
def inherit(codes: Integers, parent: Integers, /) -> bytearray | None: ...
def free_rows(starts: Integers, ends: Integers, /) -> bytearray: ...
def call_times(
    names: Integers,
    threads: Integers,
    starts: Integers,
    ends: Integers,
    order: Integers,
    count: int,
    /,
) -> bytearray: ...
