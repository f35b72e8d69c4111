"""The terminal summary."""

import io
import re
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from gpuprof.reports.formatting import kernel_name
from gpuprof.reports.terminal import TOP_KERNELS, render_summary
from gpuprof.roofline.analysis import Analysis


def _text(analysis: Analysis, width: int = 80, *, terminal: bool = False) -> str:
    output = io.StringIO()
    console = Console(file=output, width=width, force_terminal=terminal, color_system=None)
    render_summary(analysis, console, Path("my run.gpuprof"))
    return output.getvalue()


@pytest.mark.parametrize("width", [80, 100])
def test_no_line_is_wider_than_the_terminal(training_analysis: Analysis, width: int) -> None:
    assert max(len(line) for line in _text(training_analysis, width).splitlines()) <= width


def test_the_summary_says_what_matters(training_analysis: Analysis) -> None:
    text = " ".join(_text(training_analysis).split())
    for part in (
        "NVIDIA H100 80GB HBM3",
        "optimizer steps (AdamW) 3 warm-up, 10 timed, 3 profiled",
        "12.91 ms median of 10",
        "CUDA events",
        "+6.1%",
        "of 989 TFLOP/s bf16 tensor (datasheet, dense)",
        "at the roof",
        "waiting for launches",
        "compute GEMMs reach 66 %",
        "Up to 3.01 ms a step to gain.",
        "98.3% a FLOP model",
        "mylib::rope_backward (192 µs)",
        "The power limit lowered the SM clock",
    ):
        assert part in text


def test_the_last_line_can_be_pasted_into_a_shell(training_analysis: Analysis) -> None:
    assert _text(training_analysis, 40).splitlines()[-1] == "gpuprof report 'my run.gpuprof'"


_CLASSES = ("compute", "memory", "small", "launch", "unknown")


def test_the_largest_kernels_are_listed_with_calls_a_step(training_analysis: Analysis) -> None:
    lines = _text(training_analysis, 200).splitlines()
    head = next(index for index, line in enumerate(lines) if line.startswith("Kernel"))
    rows = [line.split() for line in lines[head + 2 :]]
    first = training_analysis.kernels[0]
    per_step = first.calls / training_analysis.steps.profiled
    assert rows[0][:2] == [kernel_name(first.name), f"{per_step:g}"]
    assert rows[0][-1] == first.bottleneck.kind
    assert rows[1][0] == first.op
    assert sum(row[-1:] in ([kind] for kind in _CLASSES) for row in rows) == TOP_KERNELS


def test_flops_bytes_and_intensity_come_with_room(training_analysis: Analysis) -> None:
    assert "FLOP/B" in _text(training_analysis, 100)
    assert "FLOP/B" not in _text(training_analysis, 80)


def test_over_the_roof_is_marked_and_explained(training_analysis: Analysis) -> None:
    first = msgspec.structs.replace(training_analysis.kernels[0], roof_fraction=1.31)
    analysis = msgspec.structs.replace(
        training_analysis, kernels=(first, *training_analysis.kernels[1:])
    )
    text = _text(analysis)
    assert "131%!" in text
    assert "peak or count wrong, or data in cache" in text
    assert "peak or count wrong" not in _text(training_analysis)


def test_without_ceilings_the_reason_is_given_once(cpu_analysis: Analysis) -> None:
    text = " ".join(_text(cpu_analysis).split())
    assert text.count("so there are no percentages of a roof") == 1


def test_nothing_known_still_makes_a_summary(bare_analysis: Analysis) -> None:
    text = _text(bare_analysis)
    assert "no complete step was seen" in text
    assert "ended with an exception (exit code 1)" in text
    assert "None" not in text
    assert "nan" not in text


def test_names_can_neither_style_nor_move_the_terminal(training_analysis: Analysis) -> None:
    hostile = msgspec.structs.replace(
        training_analysis.kernels[0], name="[red]mm[/red]\x1b[2J\x1b]0;title\x07"
    )
    analysis = msgspec.structs.replace(training_analysis, kernels=(hostile,), title="\x1b[5mtitle")
    text = _text(analysis, 120, terminal=True)
    assert "\x1b[2J" not in text
    assert "\x1b[5m" not in text
    assert "\x07" not in text
    assert r"[red]mm[/red]\x1b[2J" in text


def test_no_color_is_honoured(training_analysis: Analysis, monkeypatch: pytest.MonkeyPatch) -> None:
    def colours() -> int:
        output = io.StringIO()
        console = Console(file=output, force_terminal=True, width=80, color_system="standard")
        render_summary(training_analysis, console)
        return output.getvalue().count("\x1b[34m")

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert colours() > 0
    monkeypatch.setenv("NO_COLOR", "1")
    assert colours() == 0


def test_the_most_important_comes_first_and_labels_are_aligned(training_analysis: Analysis) -> None:
    lines = _text(training_analysis, 100).splitlines()
    starts = ("Step time", "MFU", "Largest loss", "Where a step", "Kernel", "Steps", "Coverage")
    found = [next(n for n, line in enumerate(lines) if line.startswith(each)) for each in starts]
    assert found == sorted(found)
    labels = ("Step time", "MFU ", "Steps", "Coverage")
    labelled = [line for line in lines if line.startswith(labels)]
    values = {re.sub(r"^(\w+ )*\w+ {2,}", "", line) for line in labelled}
    columns = {len(line) - len(value) for line in labelled for value in values if value in line}
    assert len(labelled) >= len(labels)
    assert len(columns) == 1


def test_parts_of_a_step_that_took_no_time_are_no_rows(training_analysis: Analysis) -> None:
    split = training_analysis.split
    assert split is not None
    parts = tuple(msgspec.structs.replace(part, nanoseconds=0) for part in split.parts[1:])
    first = split.parts[0]
    one = msgspec.structs.replace(split, step_ns=first.nanoseconds, parts=(first, *parts))
    text = _text(msgspec.structs.replace(training_analysis, split=one))
    shown = text[text.index("Where a step") : text.index("Largest 10")]
    assert "at the roof" in shown
    assert "0 ns" not in shown
