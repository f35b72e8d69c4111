"""collectors.joining.first_launches: the first launches of each function, grid and block."""

import gzip
import json
from pathlib import Path

import polars as pl

from gpuprof.collectors import storage
from gpuprof.collectors.joining.captures import join
from gpuprof.collectors.joining.first_launches import match_first_launches
from gpuprof.collectors.joining.launch_keys import KEY, launch_keys
from gpuprof.collectors.joining.launch_matching import base_name
from gpuprof.collectors.ncu.reader import read
from gpuprof.roofline.counting.plan import window_of

DATA = Path(__file__).resolve().parents[1] / "data"
NCU = DATA / "ncu"


def frame(*launches: tuple[str, str], shared: tuple[int, ...] = ()) -> pl.DataFrame:
    """Launches of a name and grid."""
    names, grids = zip(*launches, strict=True)
    return pl.DataFrame(
        {
            "row": pl.Series(range(len(launches)), dtype=pl.UInt32),
            "kernel": names,
            "grid": grids,
            "block": ["(128, 1, 1)"] * len(launches),
            "shared_memory": list(shared or [0] * len(launches)),
        }
    )


def pairs(trace: pl.DataFrame, report: pl.DataFrame) -> list[tuple[int, int, bool]]:
    return list(match_first_launches(trace, report).iter_rows())


ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"
MUL = "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float>>(int)"
ADD_OF_NCU = "void at::vectorized_elementwise_kernel<4, at::CUDAFunctor_add<float>>(T1)"
MUL_OF_NCU = "void at::vectorized_elementwise_kernel<4, at::MulFunctor<float>>(T1)"


def test_template_arguments_do_not_count_as_ncu_does_not_tell_them_apart() -> None:
    """Of an addition, a product and a sine of one grid it took the addition alone, on an H200."""
    trace = frame((ADD, "a"), (MUL, "a"), (ADD, "a"), (MUL, "b"))
    report = frame((ADD_OF_NCU, "a"), (MUL_OF_NCU, "a"), (MUL_OF_NCU, "b"))
    assert pairs(trace, report) == [(0, 0, True), (1, 1, True), (3, 2, True)]


def test_the_second_of_a_kind_is_the_traces_second() -> None:
    trace = frame(("gemm", "a"), ("add", "a"), ("gemm", "a"), ("gemm", "a"))
    assert pairs(trace, frame(("gemm", "a"), ("gemm", "a"))) == [(0, 0, True), (2, 1, True)]


def test_shared_memory_that_differs_within_a_kind_is_unsure() -> None:
    trace = frame(("gemm", "a"), ("gemm", "a"), shared=(1024, 2048))
    assert pairs(trace, frame(("gemm", "a"))) == [(0, 0, False)]


def test_launches_that_the_trace_lacks_find_nothing() -> None:
    assert pairs(frame(("gemm", "a")), frame(("gemm", "b"), ("gemm", "a"), ("gemm", "a"))) == [
        (0, 1, True)
    ]


def test_a_recorded_step_is_matched_as_by_its_whole_sequence() -> None:
    """The page of ncu holds every launch of its names, which its order tells for certain."""
    capture = storage.load(DATA / "captures" / "h100_llama_block")
    report = read(NCU / "h100_llama_block_step.csv.gz")
    whole = join([capture, report]).counters.unique([*KEY])
    assert whole["certain"].all()
    keys = launch_keys(capture.kernels, capture.launches)
    theirs = launch_keys(report.kernels, report.launches)
    window = window_of(capture, one_step=True)
    shared = capture.kernels.select("shared_memory").with_row_index("row")
    ours = keys.join(shared, on="row", maintain_order="left").filter(
        pl.col("row").is_in(window.implode())
    )
    functions = pl.col("kernel").map_elements(base_name, return_dtype=pl.String)
    first = theirs.unique([functions, "grid", "block"], keep="first", maintain_order=True)
    found = match_first_launches(ours, first)
    assert first.height < theirs.height
    assert found.height == first.height
    assert found["certain"].all()
    expected = set(whole.select(KEY).iter_rows())
    rows = keys.join(found, left_on="row", right_on="trace_row")
    assert all(key in expected for key in rows.select(KEY).iter_rows())


def test_what_ncu_took_of_a_training_step_are_the_first_of_each_kind() -> None:
    """`--filter-mode per-launch-config --launch-count 1` on an H200: 23 of 190 launches."""
    launches = json.loads(
        gzip.decompress((NCU / "h200_training_step_launches.json.gz").read_bytes())
    )
    names, grids, blocks, shared = zip(*launches, strict=True)
    trace = pl.DataFrame(
        {
            "row": pl.Series(range(len(launches)), dtype=pl.UInt32),
            "kernel": names,
            "grid": grids,
            "block": blocks,
            "shared_memory": shared,
        }
    )
    report = read(NCU / "h200_training_first_launches.csv.gz")
    found = match_first_launches(trace, launch_keys(report.kernels, report.launches))
    assert found["certain"].all()
    kinds = [(base_name(name), *others) for name, *others in launches]
    first = {kind: row for row, kind in reversed(list(enumerate(kinds)))}
    assert sorted(found["trace_row"]) == sorted(first.values())
    assert found.height == report.kernels.height == 23
    assert len({tuple(launch) for launch in launches}) > 23
