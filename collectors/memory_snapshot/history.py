"""The history in a snapshot -> rows of the tables allocations and out_of_memory.

Source of the entries: pytorch c10/cuda/CUDACachingAllocator.h, TraceEntry, and
torch/csrc/cuda/memory_snapshot.cpp. Sizes are those that were asked for, not those of blocks.
"""

from array import array
from typing import Any, Final

import numpy as np
import polars as pl

from gpuprof.collectors import schema
from gpuprof.collectors.memory_segments import Stacks, number

# Those that are not here change nothing that is told.
_ACTIONS: Final = (
    *("alloc", "free_requested", "oom"),
    *("segment_alloc", "segment_map", "segment_free", "segment_unmap"),
)
_OTHER: Final = len(_ACTIONS)
_UNKNOWN: Final = -(1 << 63)
# Python's pickles put so many items into a list at a time: a shorter one is complete.
_MOST_AT_ONCE: Final = 1000
# With sums below this nothing leaves int64.
_LARGEST_SUM: Final = 1 << 62


class BlockHistory:
    """The entries of all devices in columns, each taken over as soon as it is built.

    As dictionaries they take ten times as much memory. It is the `Replacing` of the machine that
    builds them: None stands for an entry then, and a `StackText` for the frames of a stack. What
    has another form stays as it is.
    """

    def __init__(self, stacks: Stacks) -> None:
        self._stacks = stacks
        # -1 where there is none.
        self._numbers: dict[str | None, int] = {None: -1}
        self._columns = {
            # In `_ACTIONS`.
            "action": array("b"),
            "time_us": array("q"),
            "size": array("q"),
            # Its address; of a failed allocation what the device had free.
            "place": array("q"),
            "stack": array("i"),
        }

    def __len__(self) -> int:
        return len(self._columns["action"])

    @property
    def held_bytes(self) -> int:
        """See `Replacing`."""
        a_row = sum(column.itemsize for column in self._columns.values())
        return self._stacks.held_bytes + len(self) * a_row

    def replaced(self, built: Any) -> Any:
        """See `Replacing`."""
        try:
            if type(built) is dict:
                if "action" not in built or "size" not in built:
                    return built
                self._take_over(built)
                return None
            if not built or type(built[0]) is not dict or "filename" not in built[0]:
                return built
            return self._stacks.made(built) if len(built) < _MOST_AT_ONCE else built
        except (KeyError, TypeError, ValueError, AttributeError):
            return built

    def _take_over(self, entry: dict[str, Any]) -> None:
        action = entry["action"]
        code = _ACTIONS.index(action) if action in _ACTIONS else _OTHER
        # Before torch 2.2 entries have no time; they stand in order.
        time_us = number(entry.get("time_us", _UNKNOWN))
        if time_us != _UNKNOWN:
            number(time_us * 1000)
        place = _UNKNOWN
        if action in ("alloc", "free_requested"):
            place = number(entry["addr"])
        elif action == "oom":
            place = number(entry.get("device_free", _UNKNOWN))
        text = self._stacks.text(entry)
        row = (
            *(code, time_us, number(entry["size"]), place),
            self._numbers.setdefault(text, len(self._numbers) - 1),
        )
        for column, value in zip(self._columns.values(), row, strict=True):
            column.append(value)

    def tables(
        self, first: int, count: int, *, device: int, allocated: int, reserved: int
    ) -> dict[str, pl.DataFrame]:
        """The tables of the `count` entries of `device` from the one with the number `first` on.

        `allocated` and `reserved` are the bytes of the device in the end; those after each entry
        follow from there backwards. Raises `ValueError` where sizes are too large, and polars'
        errors.
        """
        columns = {
            name: np.frombuffer(column, dtype=column.typecode)[first : first + count]
            for name, column in self._columns.items()
        }
        sizes = np.abs(columns["size"].astype(np.float64)).sum()
        if sizes + abs(allocated) + abs(reserved) > _LARGEST_SUM:
            raise ValueError("its sizes are too large")
        texts = pl.Series("stack", list(self._numbers)[1:], dtype=pl.String)
        entries = (
            pl.DataFrame(columns)
            .lazy()
            .with_row_index("position")
            .with_columns(
                pl.lit(0).alias("rank"),
                pl.lit(device).alias("device"),
                pl.when(pl.col("time_us") == _UNKNOWN)
                .then("position")
                .otherwise(pl.col("time_us") * 1000)
                .alias("time_ns"),
                pl.col("place").replace(_UNKNOWN, None),
                _after(allocated, ("alloc",), ("free_requested",)).alias("total"),
                _after(
                    reserved, ("segment_alloc", "segment_map"), ("segment_free", "segment_unmap")
                ).alias("reserved"),
            )
        )
        allocations = entries.filter(_is("alloc", "free_requested")).with_columns(
            pl.col("place").alias("address"),
            pl.when(_is("alloc")).then("size").otherwise(-pl.col("size")).alias("bytes"),
            pl.lit("device").alias("category"),
        )
        failures = entries.filter(_is("oom")).rename({"size": "asked", "place": "free"})
        tables = {"allocations": allocations, "out_of_memory": failures}
        return {name: _of_schema(name, rows.collect(), texts) for name, rows in tables.items()}


def _is(*actions: str) -> pl.Expr:
    return pl.col("action").is_in([_ACTIONS.index(action) for action in actions])


def _after(last: int, more: tuple[str, ...], less: tuple[str, ...]) -> pl.Expr:
    """What was there after each entry, of which `last` was there after all."""
    size = pl.col("size")
    change = pl.when(_is(*more)).then(size).when(_is(*less)).then(-size).otherwise(0)
    return last - change.sum() + change.cum_sum()


def _of_schema(name: str, rows: pl.DataFrame, texts: pl.Series) -> pl.DataFrame:
    numbers = rows["stack"].replace(-1, None)
    return schema.conform(name, rows.with_columns(texts.gather(numbers).alias("stack")))
