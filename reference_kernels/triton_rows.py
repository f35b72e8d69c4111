"""How Triton programs share out rows that they hold in registers."""

from dataclasses import dataclass

import triton

# More elements a row than 32 warps hold in registers.
MOST_COLUMNS = 65536
# Elements of a thread that keep enough bytes in flight without spilling.
_ELEMENTS_PER_THREAD = 16
_LEAST_ELEMENTS = 1024
_WARP = 32


@dataclass(frozen=True)
class RowTile:
    """Rows of a program, the power of 2 that holds their columns, and its warps."""

    rows: int
    padded: int
    warps: int

    @property
    def note(self) -> str:
        return f"{self.rows} x {self.padded} elements a program, {self.warps} warps"


def choose_row_tile(columns: int, elements_per_thread: int = _ELEMENTS_PER_THREAD) -> RowTile:
    """One row a program, several where they are short."""
    padded = triton.next_power_of_2(columns)
    rows = max(1, _LEAST_ELEMENTS // padded)
    warps = rows * padded // (_WARP * elements_per_thread)
    return RowTile(rows, padded, min(max(warps, 1), 32))
