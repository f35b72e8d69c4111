"""Programs of a Triton launch share nothing: each writes its own elements, in any order.

The interpreter runs them one after another, so that a later program repairs what an earlier one
wrote past its own rows. On a GPU they race. Here they run in a shuffled order, on poisoned outputs,
and what each reads and writes is recorded. Kernels run with the tiles of the interpreter and with
all that are tried on a GPU.
"""

# Triton gives its kernels' arguments types of its own.
# mypy: disable-error-code="no-untyped-def,untyped-decorator"

import itertools
import random
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.interpreter import interpreter_builder
from versions import can_interpret, module_of, needs_newer_triton

from gpuprof.reference_kernels.families import load_family, select
from gpuprof.reference_kernels.suite import Prepared, Version, poison, relative_error

CPU = torch.device("cpu")
Addresses = npt.NDArray[np.uint64]
# Sizes that end inside a tile, the dtype that the interpreter multiplies.
CASES = {
    "attention/triton-flash": (
        "fp16",
        "causal-forward:1x2x1x150x64",
        "forward:1x2x1x70x128",
    ),
    "attention/triton-flash-backward": (
        "fp16",
        "causal-backward:1x2x1x130x32",
        "backward:1x2x1x70x16",
    ),
    "attention/triton-paged-decode": ("fp16", "decode:3x4x2x50x16", "decode:2x3x3x300x16"),
    "gemm/triton-tiled": ("fp16", "300x150x51", "1x200x150"),
    "gemm/triton-persistent": ("fp16", "200x304x120"),
    "gemm/triton-gemv": ("fp16", "1x200x150"),
    "gemm/triton-skinny": ("fp16", "13x70x150"),
    "gemm/triton-grouped": ("fp16", "5g70x137x51"),
    "convolution/implicit-gemm": ("fp16", "2x24x9x11-70x3x3-p1", "1x8x13x10-40x3x3-p1-s2-d2-g2"),
    "convolution/implicit-precomputed": ("fp16", "2x24x9x11-70x3x3-p1", "1x3x12x12-8x7x7-p3"),
    "elementwise/triton": ("fp32", "gelu:5x1003", "swiglu:7x129", "rotary:2x5x3x24"),
    "softmax/triton": ("fp32", "5x100", "3x1500"),
    "norm/triton": ("fp32", "layer:5x100", "rms:3x1500"),
    "stream/triton": ("fp32", "copy:5001", "triad:5001"),
}
# Where a version's module keeps the tiles that are tried on a GPU.
CONFIGURATIONS = ("_CONFIGURATIONS", "CONFIGURATIONS", "_FOR_KEYS", "_FOR_QUERIES")


class Launches:
    """What the programs of each launch read and wrote, as addresses of elements."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._set_index = interpreter_builder.set_grid_idx
        self._set_dimensions = interpreter_builder.set_grid_dim
        self._load = interpreter_builder.create_masked_load
        self._store = interpreter_builder.create_masked_store
        patch.setattr(interpreter_builder, "set_grid_dim", self._start)
        patch.setattr(interpreter_builder, "set_grid_idx", self._begin_program)
        patch.setattr(interpreter_builder, "create_masked_load", self._loaded)
        patch.setattr(interpreter_builder, "create_masked_store", self._stored)
        self._clear()

    def _clear(self) -> None:
        self._places: Iterator[tuple[int, ...]] = iter(())
        self._read: defaultdict[tuple[int, ...], list[Addresses]] = defaultdict(list)
        self._written: defaultdict[tuple[int, ...], list[Addresses]] = defaultdict(list)

    def _start(self, *dimensions: int) -> None:
        self.check()
        self.count += 1
        places = list(itertools.product(*map(range, dimensions)))
        random.shuffle(places)
        self._places = iter(places)
        self._set_dimensions(*dimensions)

    def _begin_program(self, *_: int) -> None:
        self._program = next(self._places)
        self._set_index(*self._program)

    def _loaded(self, pointers: Any, mask: Any, *others: Any, **named: Any) -> Any:
        self._read[self._program].append(pointers.data[mask.data])
        return self._load(pointers, mask, *others, **named)

    def _stored(self, pointers: Any, value: Any, mask: Any, *others: Any, **named: Any) -> Any:
        self._written[self._program].append(pointers.data[mask.data])
        return self._store(pointers, value, mask, *others, **named)

    def check(self) -> None:
        """That in the last launch no program wrote or read what another one wrote."""
        programs = list(self._written)
        each = [np.unique(np.concatenate(parts)) for parts in self._written.values()]
        if not each:
            return
        written = np.concatenate(each)
        writers = np.repeat(np.arange(len(each)), [len(part) for part in each])
        order = np.argsort(written, kind="stable")
        written, writers = written[order], writers[order]
        for place in np.flatnonzero(written[1:] == written[:-1]):
            first, second = (programs[writers[at]] for at in (place, place + 1))
            raise AssertionError(f"programs {first} and {second} write one element")
        for program, parts in self._read.items():
            read = np.intersect1d(np.concatenate(parts), written)
            for writer in writers[np.searchsorted(written, read)]:
                other = programs[writer]
                assert other == program, f"program {program} reads what {other} writes"
        self._clear()


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Launches:
    return Launches(monkeypatch)


def triton_versions() -> list[Version]:
    """All but the collectives, whose programs signal to those of other ranks."""
    return [
        version
        for family in select(())
        for version in family.versions
        if "cuda-core" not in version.requires
        and {"triton", "triton>=3.4"} & {*version.requires}
        and family.name != "collectives"
    ]


def tiles_tried(version: Version, dtype: str) -> list[Any]:
    """On a GPU, of a version that chooses among several; one of each shape."""
    if not can_interpret(version):
        # One, so that the test is skipped with its reason.
        return [None]
    module = module_of(version)
    tried: list[Any] = []
    for name in CONFIGURATIONS:
        held = getattr(module, name, ())
        tried += held[dtype] if isinstance(held, dict) else held
    # The interpreter knows no warps and no stages, which follow the shape.
    return list({str(tiles).partition(",")[0]: tiles for tiles in tried}.values())


def check_call(version: Version, size: str, dtype: str, launches: Launches) -> None:
    problem = load_family(version.family).problem(size, dtype, CPU, seed=torch.seed() % 2**31)
    prepared = module_of(version).prepare(problem)
    assert isinstance(prepared, Prepared)
    for _ in range(2):
        poison(prepared.outputs)
        prepared.call()
    launches.check()
    assert launches.count >= 2
    assert relative_error(prepared.outputs, problem.reference()) <= problem.tolerance


def test_every_triton_version_is_here() -> None:
    assert set(CASES) == {version.label for version in triton_versions()}


@pytest.mark.parametrize("version", triton_versions(), ids=lambda version: version.label)
def test_programs_share_nothing(version: Version, launches: Launches) -> None:
    dtype, *sizes = CASES[version.label]
    for size in sizes:
        check_call(version, size, dtype, launches)


@pytest.mark.parametrize(
    ("version", "tiles"),
    [
        pytest.param(version, tiles, id=f"{version.label}: {tiles}")
        for version in triton_versions()
        for tiles in tiles_tried(version, CASES[version.label][0])
    ],
)
def test_programs_share_nothing_with_the_tiles_of_a_gpu(
    version: Version, tiles: Any, launches: Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    dtype, *sizes = CASES[version.label]
    monkeypatch.setattr(module_of(version), "SMALL", tiles)
    for size in sizes:
        check_call(version, size, dtype, launches)


@triton.jit
def _copy_tiles(source, target, STEP: tl.constexpr, TILE: tl.constexpr):
    places = tl.program_id(0) * STEP + tl.arange(0, TILE)
    tl.store(target + places, tl.load(source + places))


@needs_newer_triton
def test_a_write_into_another_programs_elements_is_found(launches: Launches) -> None:
    _copy_tiles[(2,)](torch.arange(31.0), torch.empty(31), STEP=15, TILE=16)
    with pytest.raises(AssertionError, match="write one element"):
        launches.check()


@needs_newer_triton
def test_a_read_of_what_another_program_writes_is_found(launches: Launches) -> None:
    values = torch.arange(48.0)
    _copy_tiles[(2,)](values, values[16:], STEP=16, TILE=16)
    with pytest.raises(AssertionError, match="reads what"):
        launches.check()
