"""Counters of a device in a step's time line, in windows that are shorter than the step."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from gpuprof.collectors import schema, storage
from gpuprof.collectors.capture import Capture
from gpuprof.reports.html.page import render_html
from gpuprof.reports.markdown import render_markdown
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.timeline.activity import MOST, activities
from gpuprof.roofline.timeline.window import Window

CAPTURE = Path(__file__).parents[1] / "data" / "captures" / "h200_llama_block"
MS = 1_000_000


def windows(start_ns: int, end_ns: int, length_ns: int, **columns: float) -> pl.DataFrame:
    """Rows of `samples` one after the other; every second has half of `columns`."""
    starts = pl.Series(range(start_ns, end_ns, length_ns))
    odd = pl.Series(range(starts.len())) % 2
    rows = pl.DataFrame(
        {
            "device": 0,
            "time_ns": starts + length_ns,
            "window_start_ns": starts,
            "window_end_ns": starts + length_ns,
            **{name: value * (1 - odd / 2) for name, value in columns.items()},
        }
    )
    return schema.conform("samples", rows)


def test_windows_in_the_step_are_columns_after_its_start() -> None:
    step = Window(begin_ns=95 * MS, end_ns=110 * MS, step_ns=100 * MS)
    samples = windows(90 * MS, 120 * MS, MS // 2, tensor_active_percent=80.0)
    (tensor,) = activities(samples, step)
    assert (tensor.part, tensor.device) == ("tensor cores", 0)
    assert tensor.starts_ns == tuple(range(-5 * MS, 10 * MS, MS // 2))
    assert set(tensor.lengths_ns) == {MS // 2}
    assert tensor.percents[:2] == (80.0, 40.0)
    assert tensor.mean_percent == pytest.approx(60)


def test_windows_as_long_as_nvmls_say_nothing_of_a_short_step() -> None:
    step = Window(begin_ns=100 * MS, end_ns=110 * MS, step_ns=100 * MS)
    assert activities(windows(0, 200 * MS, 2 * MS, dram_active_percent=50.0), step) == ()
    long = Window(begin_ns=0, end_ns=2000 * MS, step_ns=0)
    (dram,) = activities(windows(0, 2000 * MS, 100 * MS, dram_active_percent=50.0), long)
    assert (dram.part, len(dram.percents)) == ("DRAM", 20)


def test_many_windows_are_taken_together() -> None:
    step = Window(begin_ns=0, end_ns=1000 * MS, step_ns=0)
    (tensor,) = activities(windows(0, 1000 * MS, MS // 10, tensor_active_percent=80.0), step)
    assert MOST / 2 < len(tensor.percents) <= MOST
    assert sum(tensor.lengths_ns) == 1000 * MS
    assert tensor.mean_percent == pytest.approx(60, abs=0.1)


def counted() -> Capture:
    """A recorded step, as if its counters had been read every 100 µs."""
    capture = storage.load(CAPTURE)
    steps = capture.steps.filter(phase="profiled")
    start_ns, end_ns = steps["start_ns"].min(), steps["end_ns"].max()
    assert isinstance(start_ns, int)
    assert isinstance(end_ns, int)
    samples = windows(
        start_ns, end_ns, MS // 10, tensor_active_percent=80.0, sm_active_percent=100.0
    )
    return replace(capture, samples=samples.with_columns(rank=pl.lit(0, pl.Int32)))


def test_the_page_draws_them_below_the_streams_and_says_their_mean() -> None:
    analysis = analyze(counted())
    assert analysis.timeline is not None
    (tensor, every) = analysis.timeline.steps[0].activities
    assert (tensor.part, every.part) == ("tensor cores", "multiprocessors")
    page = render_html(analysis)
    assert page.count('<path class="activity"') == 2
    assert "tensor cores active in 60% of the cycles in the mean" in page
    assert '"group":"GPU 0, counted"' in page
    said = "Counted in windows of 100 µs, active in the mean: tensor cores 60"
    assert said in page
    assert said in render_markdown(analysis)
