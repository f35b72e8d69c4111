"""Sources for Hopper compile; their tiles are shared out evenly; their FLOPs by closed forms."""

import pytest

from gpuprof.collectors.errors import MissingDependencyError
from gpuprof.reference_kernels.attention.cuda_flash import compile_forward
from gpuprof.reference_kernels.attention.cuda_flash_backward import compile_backward
from gpuprof.reference_kernels.attention.cuda_paged_decode import compile_decode
from gpuprof.reference_kernels.hopper.product import TILES, ProductTiles, compile_product
from gpuprof.reference_kernels.hopper.schedule import schedule

# What a block may use of shared memory on Hopper (CUDA C++ Programming Guide, "Compute
# Capabilities").
MOST_SHARED_MEMORY_BYTES = 227 * 1024
COMPILED = {
    "bf16 product": lambda: compile_product(TILES[1], dtype="bf16", b_along_k=False),
    "fp8 product": lambda: compile_product(TILES[2], dtype="fp8", b_along_k=True),
    "windows": lambda: compile_product(
        ProductTiles(64, 1, 8), dtype="fp16", b_along_k=True, windows=True
    ),
    "forward": lambda: compile_forward(64, bf16=False, causal=True),
    "backward": lambda: compile_backward("flash_backward", bf16=True, causal=True),
    "decode": lambda: compile_decode(128, 8, 8, 3, bf16=True),
    "decode of one head": lambda: compile_decode(64, 1, 1, 16, bf16=False),
}


@pytest.mark.parametrize("name", COMPILED)
def test_source_compiles(name: str) -> None:
    try:
        kernel = COMPILED[name]()
    except MissingDependencyError as error:
        pytest.skip(f"NVRTC is not here: {error}")
    assert kernel.name in {"product", "flash", "flash_backward", "decode"}


@pytest.mark.parametrize("tiles", TILES, ids=str)
def test_tiles_fit_shared_memory(tiles: ProductTiles) -> None:
    assert tiles.shared_memory_bytes <= MOST_SHARED_MEMORY_BYTES


def test_flops_are_those_of_whole_tiles() -> None:
    tiles = ProductTiles(128, cluster=2, stages=4)
    assert tiles.padded_flops(257, 129, 65, tile_k=64) == 2 * 512 * 256 * 128


def test_every_item_is_done_once_and_blocks_end_together() -> None:
    items = [(tile, head, float(tile + 1)) for tile in reversed(range(9)) for head in range(5)]
    table = schedule(items, 7)
    done = [tuple(item) for row in table.tolist() for item in row if item[0] >= 0]
    assert sorted(done) == sorted((tile, head) for tile, head, _ in items)
    # The kernel ends at the first item that is none.
    assert (table[-1] == -1).all()
    for block in range(7):
        tiles = table[:, block, 0].tolist()
        assert all(tile < 0 for tile in tiles[tiles.index(-1) :])
    work = [
        sum(tile + 1 for tile in table[:, block, 0].tolist() if tile >= 0) for block in range(7)
    ]
    # No item is longer than 9.
    assert max(work) - min(work) <= 9


def test_blocks_without_work_end_at_once() -> None:
    table = schedule([(0, 0, 1.0)], 3)
    assert table.shape == (2, 3, 2)
    assert table[0].tolist() == [[0, 0], [-1, -1], [-1, -1]]
