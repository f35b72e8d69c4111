"""Sources for Hopper compile; their tiles are shared out evenly; their FLOPs by closed forms."""

import pytest
import torch

from gpuprof.collectors.errors import MissingDependencyError
from gpuprof.reference_kernels.attention.cuda_flash import compile_forward
from gpuprof.reference_kernels.attention.cuda_flash_backward import compile_backward
from gpuprof.reference_kernels.hopper.product import TILES, ProductTiles, compile_product
from gpuprof.reference_kernels.hopper.rows import rows_in_turn
from gpuprof.reference_kernels.hopper.schedule import schedule
from gpuprof.reference_kernels.norm import cuda_persistent as norm
from gpuprof.reference_kernels.norm.problem import NormProblem
from gpuprof.reference_kernels.softmax import cuda_persistent as softmax
from gpuprof.reference_kernels.softmax.problem import SoftmaxProblem
from gpuprof.reference_kernels.suite import UnsupportedError

# What a block may use of shared memory on Hopper (CUDA C++ Programming Guide, "Compute
# Capabilities").
MOST_SHARED_MEMORY_BYTES = 227 * 1024
CPU = torch.device("cpu")
COMPILED = {
    "bf16 product": lambda: compile_product(TILES[1], dtype="bf16", b_along_k=False),
    "fp8 product": lambda: compile_product(TILES[2], dtype="fp8", b_along_k=True),
    "windows": lambda: compile_product(
        ProductTiles(64, 1, 8), dtype="fp16", b_along_k=True, windows=True
    ),
    "forward": lambda: compile_forward(64, bf16=False, causal=True),
    "softmax": lambda: softmax.kernel_for(SoftmaxProblem("2x1000", "fp16", CPU))[0],
    "norm": lambda: norm.kernel_for(NormProblem("layer:2x4096", "bf16", CPU))[0],
    "backward": lambda: compile_backward("flash_backward", bf16=True, causal=True),
}


@pytest.mark.parametrize("name", COMPILED)
def test_source_compiles(name: str) -> None:
    try:
        kernel = COMPILED[name]()
    except MissingDependencyError as error:
        pytest.skip(f"NVRTC is not here: {error}")
    assert kernel.name in {"product", "flash", "flash_backward", "softmax", "normalise"}


@pytest.mark.parametrize("tiles", TILES, ids=str)
def test_tiles_fit_shared_memory(tiles: ProductTiles) -> None:
    assert tiles.shared_memory_bytes <= MOST_SHARED_MEMORY_BYTES


@pytest.mark.parametrize(
    ("columns", "dtype"),
    [
        (8, "fp32"),
        (1000, "bf16"),
        (4096, "fp32"),
        (16384, "bf16"),
        (16384, "fp32"),
        (32768, "fp16"),
    ],
)
def test_rows_in_turn_fit_a_multiprocessor(columns: int, dtype: str) -> None:
    plan = rows_in_turn(columns, dtype)
    assert plan.stages >= 2
    assert plan.blocks * plan.shared_memory_bytes <= MOST_SHARED_MEMORY_BYTES
    assert plan.blocks * plan.share.threads <= 2048


@pytest.mark.parametrize(
    ("columns", "dtype", "reason"),
    [
        (1001, "bf16", "multiple of 16 bytes"),
        (40_000, "bf16", "up to 32768"),
        (32768, "fp32", "two rows of 131072 bytes do not fit"),
    ],
)
def test_rows_that_do_not_pass_through_are_refused(columns: int, dtype: str, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        rows_in_turn(columns, dtype)


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
