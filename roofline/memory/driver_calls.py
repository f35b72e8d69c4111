"""The calls by which torch's allocator gets memory from the driver and gives it back."""

from typing import Final

import polars as pl

# c10/cuda/CUDACachingAllocator.cpp, with and without expandable segments; on ROCm they begin with
# hip. Traces add versions (cuMemAlloc_v2).
_CALLS: Final = (
    r"^(?:cuda|hip)(?:Malloc|Free)(?:_v\d+)?$"
    r"|^(?:cu|hip)Mem(?:Alloc|Free|Create|Map|SetAccess|Unmap|Release|AddressReserve|AddressFree)"
    r"(?:_v\d+)?$"
)


def driver_calls(calls: pl.DataFrame) -> pl.DataFrame:
    """Those of `calls`, rows of `launches`, that ask the driver for memory or give it back."""
    return calls.filter(pl.col("name").str.contains(_CALLS))
