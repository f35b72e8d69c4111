"""How many blocks a kernel over symmetric memory gets."""

from dataclasses import dataclass

_WARPS = 16
# 16 bytes a thread in 16 bits: 16 warps of 32 threads, 8 elements each.
_BLOCK = 4096
_SMALLEST_BLOCK = 512
# All blocks must run at the same time, since they wait for each other's ranks: no more than the
# smallest GPU with links has multiprocessors (an A100: 108).
_MAXIMUM_BLOCKS = 96


@dataclass(frozen=True)
class LaunchShape:
    """Blocks, elements each handles at a time, and warps of each."""

    blocks: int
    block: int
    warps: int


def launch_shape(elements: int, ranks: int, signals: int) -> LaunchShape:
    """The shape for `elements`, with at least a word of `signals` for each block and rank."""
    most = min(_MAXIMUM_BLOCKS, signals // ranks)
    block = _SMALLEST_BLOCK
    # A small message is spread over many multiprocessors, each of which does its part at once.
    while block < _BLOCK and -(-elements // block) > most:
        block *= 2
    blocks = max(1, min(most, -(-elements // block)))
    return LaunchShape(blocks, block, max(1, min(_WARPS, block // 256)))
