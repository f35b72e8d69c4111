"""`gpuprof.benchmark` and `gpuprof bench --file`: functions of a user, timed by size."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
import torch
from made_up_pages import sizes_report

import gpuprof
from gpuprof.collectors.errors import CommandError
from gpuprof.collectors.live.fingerprint import cpu_device
from gpuprof.collectors.manifest import Calibration, MeasuredCeiling
from gpuprof.profiler.bench import functions
from gpuprof.profiler.bench.own_file import parsed_size, read_subject
from gpuprof.profiler.cli import main
from gpuprof.reference_kernels.benching import in_turns
from gpuprof.reference_kernels.benching.timing import Sample
from gpuprof.reference_kernels.suite import Prepared
from gpuprof.reports.bench.sizes_page import drawn_sizes, render_sizes
from gpuprof.reports.bench.sizes_plot import WIDTH, draw_sizes
from gpuprof.reports.bench.sizes_table import notes
from gpuprof.roofline.bench.sizes import CallCost, SizedTime, SizesReport

SHORT = 0.02


def square(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(size, size), torch.randn(size, size)


class WrittenClock:
    """A clock of which each call takes 1000 ns, but for a first batch that tells little."""

    name = "written"
    flushed_bytes = None
    settling_s = 0.0

    def __init__(self) -> None:
        self.batches: list[tuple[str, int]] = []

    def sample(self, prepared: Prepared, line_up: Callable[[], None], count: int) -> list[Sample]:
        name = str(prepared.call())
        first = name not in dict(self.batches)
        self.batches.append((name, count))
        times_ns = [500 if number % 2 else 1500 for number in range(count)]
        return [Sample(0, time_ns if first else 1000) for time_ns in times_ns]

    def flush(self) -> None: ...


def test_calls_take_turns_and_every_second_round_is_backwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(in_turns, "warm_up", lambda *_, **__: [])
    clock = WrittenClock()
    calls = [Prepared(partial(str, name), ()) for name in "abc"]
    timings = in_turns.time_in_turns(calls, clock, budget_s=10)
    assert clock.batches == [("a", 10), ("b", 10), ("c", 10), ("c", 20), ("b", 20), ("a", 20)]
    assert [(timing.median.value, timing.precise) for timing in timings] == [(1000, True)] * 3


def test_a_turn_ends_where_its_time_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_turns, "warm_up", lambda *_, **__: [])
    (timing,) = in_turns.time_in_turns([Prepared(str, ())], WrittenClock(), budget_s=1e-9)
    assert (len(timing.samples), timing.precise) == (10, False)


def test_operators_tell_what_a_call_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "load_cached", lambda *_: None)
    timed = gpuprof.benchmark(torch.matmul, [8, 32], inputs=square, seconds=SHORT, device="cpu")
    small, large = timed.times
    assert (small.function, small.size, small.number) == ("matmul", "8", 8.0)
    # 2 n^3 operations on two matrices of float32, and one that is written.
    assert large.cost == CallCost(
        flops=2 * 32**3,
        flops_from="operators",
        bytes_moved=3 * 4 * 32**2,
        bytes_from="operators",
    )
    assert large.median_ns is not None
    assert large.flops_per_s == 2 * 32**3 / large.median_ns * 1e9
    assert len(large.samples_ns) >= 10
    assert timed.report.method.clock == "host clock"


def test_rates_are_compared_with_ceilings_that_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = partial(MeasuredCeiling, spread=0.01, repeats=3)
    known = Calibration(
        device=cpu_device(),
        torch="2.9",
        threads=1,
        measured_ns=0,
        ceilings=(
            measured(kind="compute", name="fp32", precision="fp32", rate=1e11),
            measured(kind="memory", name="DRAM", level="DRAM", rate=1e10),
        ),
    )
    monkeypatch.setattr(functions, "load_cached", lambda *_: known)
    timed = gpuprof.benchmark(torch.matmul, [32], inputs=square, seconds=SHORT, device="cpu")
    (one,) = timed.times
    # 12,288 bytes at 10 GB/s take longer than 65,536 operations at 100 GFLOP/s.
    assert (one.cost.roof_ns, one.cost.roof_source) == (1229, "measured")
    assert one.roof_fraction == 1229 / (one.median_ns or 1)
    assert "Roof: the time if each operator ran at its own, by rates measured here." in str(timed)
    assert " roof" in str(timed).splitlines()[2]


def test_what_is_given_goes_before_what_operators_tell() -> None:
    timed = gpuprof.benchmark(
        lambda values: values * 2,
        [64],
        inputs=torch.zeros,
        bytes=lambda size: 1000 * size,
        seconds=SHORT,
        device="cpu",
    )
    (one,) = timed.times
    assert (one.cost.flops, one.cost.flops_from) == (64, "operators")
    assert (one.cost.bytes_moved, one.cost.bytes_from) == (64_000, "given")


def test_a_function_without_operators_has_a_time_and_no_rate() -> None:
    (one,) = gpuprof.benchmark(lambda size: sum(range(size)), [100], seconds=SHORT).times
    assert one.median_ns is not None
    assert (one.flops_per_s, one.bytes_per_s) == (None, None)
    assert one.cost.reason.startswith("no operator of torch was recorded in it")


def test_one_that_fails_has_no_time_and_the_others_go_on() -> None:
    def failing(size: int) -> None:
        if size > 1:
            raise RuntimeError("too large")

    timed = gpuprof.benchmark({"fails": failing, "works": abs}, [1, 2], seconds=SHORT)
    assert [one.error for one in timed.times] == [None, None, "RuntimeError: too large", None]
    assert "fails at 2: RuntimeError: too large" in str(timed)
    without = gpuprof.benchmark(abs, [1], inputs=lambda size: 1 / 0, seconds=SHORT)
    assert without.times[0].error == "inputs: ZeroDivisionError: division by zero"


def interrupted(size: int) -> None:
    if size == 2:
        raise KeyboardInterrupt


def test_ctrl_c_leaves_the_sizes_that_are_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "SIZES = (1, 2, 3)\ndef bench_it(size):\n    if size == 2: raise KeyboardInterrupt\n"
    )
    assert main(["bench", "--file", str(file), "--seconds", str(SHORT)]) == 130
    printed = capsys.readouterr().out
    assert re.search(r"^ +1 +\S+ .?s", printed, re.MULTILINE)
    assert "Interrupted: 2 and the sizes after it were not timed." in printed
    with pytest.raises(KeyboardInterrupt):
        gpuprof.benchmark(interrupted, [1, 2], seconds=SHORT)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (({}, [1]), "no function to time"),
        ((abs, []), "no sizes to time at"),
        ((abs, [(2, 3), "2x3"]), "the size 2x3 is there twice"),
    ],
)
def test_nothing_to_time_is_refused(arguments: tuple[object, object], problem: str) -> None:
    with pytest.raises(CommandError, match=problem):
        gpuprof.benchmark(*arguments)  # type: ignore[arg-type]


OWN = """
import torch
SIZES = (4, 8)
def inputs(size):
    return torch.randn(size, size), torch.randn(size, size)
def bench_product(a, b):
    return a @ b
def bench_sum(a, b):
    return a + b
def helper(size): ...
"""


def test_a_file_says_what_is_timed_and_at_which_sizes(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    subject = read_subject(file, (), ())
    assert list(subject.functions) == ["product", "sum"]
    assert list(subject.sizes) == [4, 8]
    assert list(read_subject(file, ("bench_sum",), ("2", "3x4", "half")).sizes) == [
        2,
        (3, 4),
        "half",
    ]
    assert parsed_size("0.5") == 0.5


@pytest.mark.parametrize(
    ("text", "wanted", "problem"),
    [
        ("", (), r"no function to time; expected a Python file with functions bench_NAME"),
        ("def bench_a(n): ...", (), r"SIZES is \(\); give a list of sizes, or --sizes"),
        (OWN, ("prodct",), "no function bench_prodct: did you mean product"),
        (OWN + "\nflops = 3", (), "flops is 3; expected a function of a size"),
        (OWN + "\n1 / 0", (), r"mine\.py, line 12: ZeroDivisionError: division by zero"),
        ("def x(:", (), r"mine\.py, line 1: SyntaxError"),
    ],
)
def test_a_file_that_is_wrong_is_one_line(
    tmp_path: Path, text: str, wanted: tuple[str, ...], problem: str
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(gpuprof.GpuprofError, match=problem):
        read_subject(file, wanted, ())


def test_the_command_prints_a_table_and_writes_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(OWN)
    command = ["bench", "--file", "mine.py", "--seconds", str(SHORT), "--device", "cpu"]
    assert main([*command, "-o", "a.html", "--json", "a.json"]) == 0
    printed = capsys.readouterr()
    assert re.search(r"^ +4 +product +\S+ .?s", printed.out, re.MULTILINE)
    assert "of product" in printed.out
    assert "wrote a.html" in printed.err
    assert "<polyline" in Path("a.html").read_text()
    stored = msgspec.json.decode(Path("a.json").read_bytes(), type=SizesReport)
    assert [(one.size, one.function) for one in stored.times] == [
        ("4", "product"),
        ("4", "sum"),
        ("8", "product"),
        ("8", "sum"),
    ]
    for options, problem in (
        (("-o", "a.txt"), "its name ends in one of .html, .svg, .png, .json"),
        (("-o", "a.html"), "a.html exists"),
        (("--check",), "--check is of reference kernels, not of --file"),
    ):
        assert main([*command, *options]) in (1, 2)
        assert problem in capsys.readouterr().err
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(command) == 2
    assert "--file works for one process" in capsys.readouterr().err


def report(*times: SizedTime) -> SizesReport:
    functions = tuple(dict.fromkeys(one.function for one in times))
    return msgspec.structs.replace(sizes_report(functions), times=times)


def timed(function: str, size: int, median_ns: int, **more: object) -> SizedTime:
    fields = {"lower_ns": median_ns - 10, "upper_ns": median_ns + 10, "precise": True, **more}
    return SizedTime(
        function=function,
        size=str(size),
        number=float(size),
        median_ns=median_ns,
        samples_ns=(median_ns,) * 10,
        **fields,  # type: ignore[arg-type]
    )


def test_a_plot_has_sizes_and_times_on_logarithmic_axes() -> None:
    plot = draw_sizes(sizes_report(["f"]))[0]
    (line,) = plot.lines
    first, middle, last = line.dots
    assert middle.x - first.x == pytest.approx(last.x - middle.x, abs=0.2)
    assert first.y - middle.y == pytest.approx(middle.y - last.y, abs=0.2)
    assert [tick.text for tick in plot.x_ticks] == ["10", "100", "1000"]
    assert {"1 µs", "10 µs", "100 µs"} <= {tick.text for tick in plot.y_ticks}
    assert first.x > plot.left
    assert last.x < WIDTH


def test_a_size_without_a_figure_interrupts_the_line_and_sizes_without_numbers_are_even() -> None:
    failed = SizedTime(function="f", size="b", number=None, error="E")
    named = [
        msgspec.structs.replace(timed("f", 1, 1000), size=size, number=None) for size in "acde"
    ]
    (plot,) = draw_sizes(report(named[0], failed, *named[1:]))
    (line,) = plot.lines
    assert len(line.dots) == 4
    (piece,) = line.pieces
    assert len(piece.split()) == 3
    steps = {round(b.at - a.at) for a, b in zip(plot.x_ticks, plot.x_ticks[1:], strict=False)}
    assert len(steps) == 1


def test_page_and_drawing_have_the_plots_and_what_they_rest_on() -> None:
    costs = CallCost(flops=10**6, flops_from="given", bytes_moved=10**6, bytes_from="operators")
    made = report(
        timed("a<b>", 10, 1000, cost=costs, sm_clock_mhz=1500, host_median_ns=2000),
        timed("g", 10, 2000, cost=costs, precise=False, throttle_reasons=("power cap",)),
    )
    page = render_sizes(made)
    assert "a<b>" not in page
    assert [plot.title for plot in draw_sizes(made)] == ["Time of a call", "FLOP/s", "Bytes/s"]
    for said in (
        "a<b> at 10: the host took longer to start it than the device to do it",
        "FLOPs: as given.",
        "SM clock: 1500 to 1500 MHz; slowed down by: power cap.",
    ):
        assert said in list(notes(made))
    # A device that was held meanwhile has not waited.
    assert not timed("f", 10, 1000, host_median_ns=2000, head_start_ns=1500).host_bound
    drawing = drawn_sizes(made)
    assert drawing is not None
    root = ElementTree.fromstring(drawing.svg)
    assert len(root.findall(".//{http://www.w3.org/2000/svg}path[@class='dot']")) == 6
    assert "var(" not in drawing.svg
    assert drawn_sizes(report(SizedTime(function="f", size="1", number=1.0, error="E"))) is None
