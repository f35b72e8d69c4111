"""Memory in a summary and in a report."""

import re
from io import StringIO

import msgspec
import pytest
from rich.console import Console

from gpuprof.reports.html.memory_plot import draw_memory, make_memory_plot
from gpuprof.reports.html.page import render_html
from gpuprof.reports.markdown import render_markdown
from gpuprof.reports.sections.memory import SECTION
from gpuprof.reports.terminal import render_summary
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.memory_figures import (
    DeviceMemory,
    Fragmentation,
    KindBytes,
    MemoryHolder,
    MemoryMoment,
    MemoryTimeline,
    MemoryUse,
    OutOfMemory,
    StepMemory,
)

GB = 10**9
PEAK = MemoryMoment(
    time_ns=5,
    step=2,
    allocated_bytes=70 * GB,
    reserved_bytes=75 * GB,
    kinds=(KindBytes("activations", 50 * GB), KindBytes("parameters", 20 * GB)),
    holders=(
        MemoryHolder(
            kind="activations", bytes=45 * GB, blocks=24, operator="aten::mm", module="up"
        ),
        MemoryHolder(kind="parameters", bytes=20 * GB, blocks=8),
    ),
    other_holders=3,
    other_holders_bytes=5 * GB,
)
MEMORY = DeviceMemory(
    device=0,
    total_bytes=80 * GB,
    run_peak_allocated_bytes=71 * GB,
    run_peak_reserved_bytes=76 * GB,
    retries=2,
    peak=PEAK,
    peak_reserved_bytes=75 * GB,
    steps=(StepMemory(step=1, peak_bytes=69 * GB, end_bytes=21 * GB),),
    timeline=MemoryTimeline(
        start_ns=1,
        times_ns=(0, 2_000_000, 4_000_000),
        allocated_bytes=(20 * GB, 70 * GB, 21 * GB),
        reserved_bytes=(None, 75 * GB, 75 * GB),
        steps_ns=((0, 5_000_000),),
    ),
    fragmentation=Fragmentation(
        reserved_bytes=75 * GB,
        allocated_bytes=21 * GB,
        pending_bytes=0,
        largest_free_block_bytes=9 * GB,
        inactive_split_bytes=12 * GB,
    ),
)


def with_memory(analysis: Analysis, memory: DeviceMemory, **use: object) -> Analysis:
    """`analysis` of a program that used its memory so."""
    found = msgspec.structs.replace(MemoryUse(devices=(memory,)), **use)
    return msgspec.structs.replace(analysis, memory=found)


def summary(analysis: Analysis) -> str:
    """The summary as text on one line."""
    console = Console(file=StringIO(), width=400)
    render_summary(analysis, console)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_a_summary_speaks_of_memory_that_is_nearly_full(training_analysis: Analysis) -> None:
    text = summary(with_memory(training_analysis, MEMORY))
    (line,) = [line for line in text.splitlines() if line.startswith("Memory")]
    for part in (
        "peak 71.0 GB",
        "95.0% of the device reserved at most",
        "activations 71.4%, parameters 28.6%",
        "2 times the allocator gave all free memory back",
    ):
        assert part in line
    assert "never in use at once" not in line


def test_a_summary_says_nothing_of_memory_in_nobodys_way(training_analysis: Analysis) -> None:
    ample = msgspec.structs.replace(
        MEMORY,
        run_peak_allocated_bytes=6 * GB,
        run_peak_reserved_bytes=7 * GB,
        retries=0,
    )
    assert "Memory" not in summary(with_memory(training_analysis, ample))
    # Half of it unused, of a device of which half is reserved.
    fragmented = msgspec.structs.replace(ample, run_peak_reserved_bytes=40 * GB)
    assert "85.0% of what was reserved was never in use at once" in summary(
        with_memory(training_analysis, fragmented)
    )


def test_calls_for_memory_in_steady_steps_are_named(training_analysis: Analysis) -> None:
    steps = training_analysis.steps.profiled
    analysis = with_memory(
        training_analysis, MEMORY, driver_calls=4 * steps, driver_calls_ns=steps * 3_000_000
    )
    assert (
        "| Allocator | **3.00 ms a step** | 4 calls a step get memory from the driver or give it "
        "back |"
    ) in render_markdown(analysis)


def test_a_capture_of_memory_alone_has_it_in_its_summary(bare_analysis: Analysis) -> None:
    ample = msgspec.structs.replace(MEMORY, total_bytes=None, run_peak_allocated_bytes=None)
    text = " ".join(summary(with_memory(bare_analysis, ample)).split())
    assert "Memory peak 70.0 GB 75.0 GB reserved then" in text
    assert "Largest 45.0 GB activations · aten::mm · up (24 blocks)" in text
    assert "Unused 72.0% of the 75.0 GB reserved at the end" in text


def test_a_report_has_the_peak_by_kind_and_operator(training_analysis: Analysis) -> None:
    text = render_markdown(with_memory(training_analysis, MEMORY))
    for part in (
        "## Memory",
        "| Peak | **70.0 GB** | in profiled step 2 of 3; 75.0 GB reserved then |",
        "| Of the whole run | **71.0 GB** | 76.0 GB reserved at most, 95.0% of the device |",
        "| Unused | **72.0%** |",
        "| activations, kept from the forward pass | 50.0 GB | 71.4% |",
        "| aten::mm | up | activations | 24 | 45.0 GB | 64.3% |",
        "3 other origins hold 5.00 GB together.",
    ):
        assert part in text
    # No column without anything in it.
    assert "| Line |" not in text


def test_a_failure_stands_first_with_what_was_live(training_analysis: Analysis) -> None:
    failure = OutOfMemory(
        device=0,
        asked_bytes=20 * GB,
        limit_bytes=80 * GB,
        free_bytes=GB,
        line="train.py:42 forward",
        fatal=True,
        live=PEAK,
        fragmentation=MEMORY.fragmentation,
        advice=("Use smaller batches.",),
    )
    analysis = with_memory(training_analysis, MEMORY, out_of_memory=failure)
    text = " ".join(summary(analysis).split())
    for part in (
        "20.0 GB asked for of 80.0 GB that torch may use; 1.00 GB of the device was free; "
        "54.0 GB reserved and unused, the largest piece 9.00 GB; at train.py:42 forward",
        "Live then 70.0 GB activations 71.4%, parameters 28.6%",
        "Largest 45.0 GB activations · aten::mm · up (24 blocks)",
        "To do Use smaller batches.",
    ):
        assert part in text
    page = render_html(analysis)
    assert page.index("Use smaller batches.") < page.index("Of the whole run")
    assert "when memory ran out" in page


def test_memory_without_events_has_no_plot(bare_analysis: Analysis) -> None:
    memory = DeviceMemory(device=0, fragmentation=MEMORY.fragmentation)
    page = render_html(with_memory(bare_analysis, memory))
    assert '<section id="memory">' in page
    assert "memory-drawing" not in page
    assert not SECTION.body(bare_analysis)


def test_the_plot_stands_without_script_and_with_it(bare_analysis: Analysis) -> None:
    # A page that has no other plot brings what draws this one.
    page = render_html(with_memory(bare_analysis, MEMORY))
    assert "plotly-bundle" in page
    assert "memoryDrawn" in page
    assert 'class="allocated" d="M62.0 ' in page
    assert "what the device has" in page


def test_a_plot_has_units_that_its_values_read_well_in() -> None:
    assert MEMORY.timeline is not None
    plot = make_memory_plot(MEMORY.timeline, 80 * GB)
    assert (plot.byte_unit, plot.time_unit) == ("GB", "ms")
    assert plot.times == (0, 2, 4, 5)
    assert plot.allocated == (20, 70, 21, 21)
    assert plot.reserved == (None, 75, 75, 75)
    assert plot.limit == 80
    # A device that is mostly empty would press the line to the ground.
    assert make_memory_plot(MEMORY.timeline, 800 * GB).limit is None


@pytest.mark.parametrize("size", [0, 1, 3, 999, 10**6 + 1, 7 * 10**10])
def test_every_plot_has_ticks_from_zero_within_it(size: int) -> None:
    timeline = MemoryTimeline(
        start_ns=0, times_ns=(0, size), allocated_bytes=(0, size), reserved_bytes=(None, None)
    )
    drawing = draw_memory(make_memory_plot(timeline, None))
    for ticks in (drawing.x_ticks, drawing.y_ticks):
        assert 2 <= len(ticks) <= 14
        assert re.match(r"0 \w+", ticks[0].text)
    assert all(drawing.top <= tick.at <= drawing.bottom for tick in drawing.y_ticks)
    assert all(drawing.left <= tick.at <= drawing.right for tick in drawing.x_ticks)
