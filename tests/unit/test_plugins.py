"""What other distributions add by entry points, and that nothing breaks where they are wrong."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path

import msgspec
import pytest
import torch
from capture_builder import CaptureBuilder
from checkout import needs_checkout
from plug_ins import EntryPoints, install, install_project, nothing_loaded
from rich.console import Console

import gpuprof
from gpuprof.collectors.live.collection import LiveCollection
from gpuprof.collectors.live.collector import Scope
from gpuprof.collectors.live.roster import COLLECTORS
from gpuprof.collectors.manifest import Device
from gpuprof.collectors.opening import open_trace
from gpuprof.collectors.opening.formats import READERS
from gpuprof.collectors.plugins import PluginUse, group, noted_problems
from gpuprof.profiler import captures
from gpuprof.profiler.cli import main
from gpuprof.profiler.machine.plugin_checks import plugin_checks
from gpuprof.profiler.traces import analyze_rank, read_run
from gpuprof.reference_kernels.benching.coordination import Alone
from gpuprof.reference_kernels.benching.run import BenchOptions, BenchPlan, run_plan
from gpuprof.reference_kernels.benching.timing import HostClock
from gpuprof.reference_kernels.families import KERNELS, load_family, select
from gpuprof.reports.html.page import render_html
from gpuprof.reports.markdown import render_markdown
from gpuprof.reports.sections import PLUGGED
from gpuprof.reports.terminal import render_summary
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.bench.results import CaseResult
from gpuprof.roofline.classes import CLASSES, classes
from gpuprof.roofline.comparison.compare import compare
from gpuprof.roofline.cost_models import plugged
from gpuprof.roofline.machine.devices import DEVICES, find_spec

pytestmark = needs_checkout
EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin"
LOG = EXAMPLE / "training.stopwatch"
Add = Callable[..., None]


@pytest.fixture
def add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Add]:
    """Install a distribution with one module, called as it, in a folder on the path."""
    folder = tmp_path / "site"
    folder.mkdir()

    def added(name: str, entry_points: EntryPoints, source: str = "") -> None:
        (folder / f"{name}.py").write_text(textwrap.dedent(source))
        install(folder, name, entry_points)

    with nothing_loaded(monkeypatch, folder):
        yield added


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example package is installed."""
    install_project(tmp_path / "site", EXAMPLE)
    with nothing_loaded(monkeypatch, tmp_path / "site", EXAMPLE):
        yield


def said() -> list[str]:
    return [problem.sentence for problem in noted_problems()]


def add_work(operator: str = "mylib::add") -> gpuprof.Capture:
    """A step with one memory-bound call of an operator, far below its roof."""
    capture = CaptureBuilder()
    capture.step("profiled", 0, 4_000_000)
    capture.op(operator, 10, 100, dims="[[1024, 1024], []]", types='["float", "Scalar"]')
    capture.kernel(20, 1_000, 2_001_000)
    return capture.build(shapes_recorded=True)


def test_the_example_adds_one_of_each_kind(example: None) -> None:
    analysis = gpuprof.analyze(read_run([LOG], lambda _: None))
    assert said() == []
    wide, narrow = sorted(analysis.ops, key=lambda point: point.detail, reverse=True)
    # A product and a sum for each of 8192 x 4096 elements, in two calls.
    assert wide.total_flops == narrow.total_flops == 2 * 2 * 8192 * 4096
    assert wide.total_bytes == 2 * 3 * 4 * 8192 * 4096
    assert wide.assumptions == ("counted by the cost model of gpuprof-example 1.0",)
    assert (wide.bottleneck.kind, narrow.bottleneck.kind) == ("memory", "narrow")
    assert "a row has 32 bytes, a transaction 64 (says gpuprof-example 1.0)" in (
        narrow.bottleneck.evidence
    )
    # 600 GB/s for 805,306,368 bytes in 1.6 ms.
    assert wide.roof_fraction == pytest.approx(805_306_368 / 600e9 / 1.6e-3)
    assert {(use.adds, use.of) for use in analysis.plugins} == {
        ("reader", "a stopwatch log of an Example X1"),
        ("device", "Example X1"),
        ("cost model", "example::scaled_add"),
        ("class", "narrow"),
    }
    assert analysis.installed_plugins == ("gpuprof-example 1.0",)


def test_a_comparison_says_what_plug_ins_did_to_one_side(example: None) -> None:
    analysis = gpuprof.analyze(read_run([LOG], lambda _: None))
    without = msgspec.structs.replace(analysis, plugins=analysis.plugins[1:])
    (use, *_) = analysis.plugins
    said = f"plug-ins had a part in the base alone: gpuprof-example 1.0 ({use.adds} {use.of})"
    assert said in compare(analysis, without).notes
    assert not [note for note in compare(analysis, analysis).notes if "plug-ins" in note]


def test_every_report_says_what_plug_ins_made(example: None) -> None:
    analysis = gpuprof.analyze(read_run([LOG], lambda _: None))
    console = Console(file=StringIO(), width=200)
    render_summary(analysis, console)
    assert isinstance(console.file, StringIO)
    page = render_html(analysis)
    for text in (console.file.getvalue(), render_markdown(analysis).replace("\\", ""), page):
        assert "class narrow; cost model example::scaled_add; device Example X1; reader" in text
        assert "below the roof, narrow rows" in text
    assert '<section id="example-sizes">' in page
    assert page.index('<section id="example-sizes">') < page.index('<section id="machine">')
    assert "From the plug-in gpuprof-example 1.0." in page


def test_the_example_is_listed_and_runs_in_the_bench(example: None) -> None:
    checks = list(plugin_checks(with_torch=True))
    assert {check.state for check in checks} == {"yes"}
    assert [check.finding for check in checks][:2] == [
        "cost model example::scaled_add",
        "reader a stopwatch log of an Example X1",
    ]
    (family,) = select(["softmax/in-parts"])
    (version,) = family.versions
    assert version.plugin == "gpuprof-example 1.0"
    problem = family.problem("300x64", "fp32", torch.device("cpu"))
    prepared = version.prepare(problem)
    prepared.call()
    torch.testing.assert_close(prepared.outputs[0].double(), problem.reference()[0])
    # Those of ours are as they were.
    assert [one.plugin for one in load_family("softmax").versions[:-1]] == [""] * 5


def test_the_command_line_reads_with_a_plug_in_and_without(
    example: None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("gpuprof.collectors.plugins.problems._tell", print)
    command = ["analyze", str(LOG), "-o", str(tmp_path / "a.gpuprof"), "--force"]
    assert main(command) == 0
    assert "Example X1" in capsys.readouterr().out
    monkeypatch.setenv("GPUPROF_PLUGINS", "0")
    group._loaded.clear()
    assert main(command) == 1
    assert "no known trace" in capsys.readouterr().err


def test_the_page_of_plug_ins_names_every_group_and_what_it_takes() -> None:
    rows = (EXAMPLE.parents[1] / "docs" / "plugins.md").read_text().splitlines()
    for one in (READERS, DEVICES, CLASSES, PLUGGED, COLLECTORS, KERNELS):
        (row,) = (row for row in rows if row.startswith(f"| `{one.name}` |"))
        for kind in one.kinds:
            assert f"`{kind.__module__}.{kind.__qualname__}`" in row
    assert any(row.startswith(f"| `{plugged.GROUP}` |") for row in rows)


def test_a_command_that_asks_none_imports_none(add: Add) -> None:
    for kind in ("readers", "cost_models", "classes", "sections", "devices", "collectors"):
        add(f"loud_{kind}", {f"gpuprof.{kind}": {"loud": f"loud_{kind}"}}, "raise OSError")
    with pytest.raises(SystemExit):
        main(["--version"])
    with pytest.raises(SystemExit):
        main(["--help"])
    assert not [name for name in sys.modules if name.startswith("loud_")]
    assert said() == []


def test_one_that_does_not_load_is_a_line_and_no_more(add: Add) -> None:
    add("broken", {"gpuprof.cost_models": {"all": "broken"}}, "import a_module_that_is_not_there")
    add("leaving", {"gpuprof.devices": {"it": "leaving:X"}}, "raise SystemExit(3)")
    add("missing", {"gpuprof.classes": {"it": "missing:ROW"}})
    analysis = gpuprof.analyze(add_work())
    assert set(said()) <= set(analysis.warnings)
    assert sorted(said()) == [
        "plug-in broken 1.0 (gpuprof.cost_models: all): broken does not load: "
        "ModuleNotFoundError: No module named 'a_module_that_is_not_there'",
        "plug-in leaving 1.0 (gpuprof.devices: it): leaving:X does not load: SystemExit: 3",
        "plug-in missing 1.0 (gpuprof.classes: it): missing:ROW does not load: AttributeError: "
        "module 'missing' has no attribute 'ROW'",
    ]
    assert analysis.installed_plugins == ("broken 1.0", "leaving 1.0", "missing 1.0")
    (check,) = (one for one in plugin_checks(with_torch=False) if one.name == "leaving 1.0: it")
    assert (check.state, check.finding) == ("no", "no device")
    assert check.remedy == "leaving:X does not load: SystemExit: 3"


def test_what_a_plug_in_prints_as_it_is_imported_does_not_reach_stdout(
    add: Add, capsys: pytest.CaptureFixture[str]
) -> None:
    add("chatty", {"gpuprof.devices": {"it": "chatty"}}, "print('hello')")
    DEVICES.load()
    printed = capsys.readouterr()
    assert (printed.out, printed.err.splitlines()[0]) == ("", "hello")


def test_a_group_that_does_not_exist_is_listed_by_the_doctor(add: Add) -> None:
    add("slip", {"gpuprof.reader": {"it": "slip:FORMAT"}})
    (check,) = plugin_checks(with_torch=False)
    assert (check.name, check.state) == ("slip 1.0: it", "no")
    assert check.finding == "gpuprof.reader is no group of plug-ins"
    assert "gpuprof.readers, gpuprof.reference_kernels, gpuprof.sections" in check.remedy


def test_a_thread_that_asks_while_another_loads_waits_for_what_it_finds(add: Add) -> None:
    slow = "import time\ntime.sleep(0.2)\n" + DEVICE.replace("{rate}", "1")
    add("slow", {"gpuprof.devices": {"it": "slow:ROWS"}}, slow)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: len(DEVICES.load()), range(4)))
    assert found == [1, 1, 1, 1]


def test_what_is_of_another_kind_is_told_what_was_expected(add: Add) -> None:
    add("odd", {"gpuprof.readers": {"a": "odd:read", "b": "odd:HALF"}}, ODD)
    assert READERS.load() == ()
    expected = "expected gpuprof.collectors.opening.formats.TraceFormat, or a tuple of them"
    assert said() == [
        f"plug-in odd 1.0 (gpuprof.readers: a): a function, {expected}; it is left out",
        "plug-in odd 1.0 (gpuprof.readers: b): a reader that is not complete: TypeError: "
        "Value after * must be an iterable, not NoneType; it is left out",
    ]


ODD = """
from gpuprof.collectors.opening.formats import TraceFormat
def read(path): ...
HALF = TraceFormat("half", None, None, None)
"""
DEVICE = """
from gpuprof.roofline.machine.devices import DeviceSpec, Peaks
def row(name, pattern, rate):
    return DeviceSpec(name=name, patterns=(pattern,), memory_gib=(80,), dram_gb_per_s=rate,
                      source="its vendor")
ROWS = [row("Board", "board x", {rate}), row("H200 of mine", "h200", 9000)]
"""


def test_of_two_that_claim_the_same_the_first_stays_and_ours_before_all(add: Add) -> None:
    add("zeta", {"gpuprof.devices": {"it": "zeta:ROWS"}}, DEVICE.replace("{rate}", "2"))
    add("alpha", {"gpuprof.devices": {"it": "alpha:ROWS"}}, DEVICE.replace("{rate}", "1"))
    assert [plugin.value.dram_gb_per_s for plugin in DEVICES.load()] == [1]
    assert said() == [
        "plug-in alpha 1.0 (gpuprof.devices: it): 'h200' is already a device of gpuprof; "
        "it is left out",
        "plug-in zeta 1.0 (gpuprof.devices: it): 'Board' is already a device of alpha 1.0; "
        "it is left out",
        "plug-in zeta 1.0 (gpuprof.devices: it): 'h200' is already a device of gpuprof; "
        "it is left out",
    ]
    spec = find_spec(Device(index=0, kind="cuda", name="Board X")).spec
    assert spec is not None
    assert spec.source == "its vendor (plug-in alpha 1.0)"


MODELS = """
import gpuprof
@gpuprof.cost_model("mylib::add", "aten::mm")
def model(call):
    return {result}
"""


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (
            "call.nothing",
            "the cost model of mylib::add raised AttributeError: 'OpCall' object has "
            "no attribute 'nothing'",
        ),
        (
            "42",
            "the cost model of mylib::add raised TypeError: it gave int, expected a gpuprof.Cost "
            "or None",
        ),
    ],
)
def test_a_cost_model_that_is_wrong_makes_its_operator_unknown(
    add: Add, result: str, reason: str
) -> None:
    add("models", {"gpuprof.cost_models": {"it": "models"}}, MODELS.replace("{result}", result))
    (point,) = gpuprof.analyze(add_work()).ops
    assert (point.flops, point.bottleneck.evidence) == (None, reason)
    assert said() == [
        "plug-in models 1.0 (gpuprof.cost_models: it): aten::mm has a cost model of gpuprof, "
        "which stays; it is left out"
    ]


def test_a_module_without_a_model_is_told_and_one_of_the_program_is_adopted(add: Add) -> None:
    add("empty", {"gpuprof.cost_models": {"it": "empty", "that": "empty:X"}}, "X = 3")
    source = MODELS.replace(', "aten::mm"', "").replace("{result}", "gpuprof.Cost(**COST)")
    cost = "COST = dict(flops=(), bytes_read=8, bytes_written=8)\n"
    add("known", {"gpuprof.cost_models": {"it": "known"}}, cost + source)
    __import__("known")
    analysis = gpuprof.analyze(add_work())
    assert said() == [
        "plug-in empty 1.0 (gpuprof.cost_models: it): empty registered no cost model",
        "plug-in empty 1.0 (gpuprof.cost_models: that): empty:X is a int, expected a module that "
        "calls gpuprof.cost_model",
    ]
    assert analysis.plugins == (PluginUse("known 1.0", "cost model", "mylib::add"),)


READER = """
from gpuprof.collectors.opening.formats import TraceFormat
def recognises(start): {recognises}
def read(path): {read}
FORMAT = TraceFormat("{name}", (), recognises, read)
"""


def reader(name: str, recognises: str, read: str) -> str:
    words = {"{name}": name, "{recognises}": recognises, "{read}": read}
    text = READER
    for word, meant in words.items():
        text = text.replace(word, meant)
    return text


def test_a_reader_that_fails_is_named_in_one_line(add: Add, tmp_path: Path) -> None:
    yes = "return start.startswith(b'toy')"

    def adding(name: str, source: str) -> None:
        add(name, {"gpuprof.readers": {"it": f"{name}:FORMAT"}}, source)

    adding("a_none", reader("none", yes, "return None"))
    adding("b_raises", reader("raises", "raise KeyError('x')", "pass"))
    adding("c_other", reader("other", yes, "raise OSError"))
    file = tmp_path / "log.toy"
    file.write_text("toy 1")
    with pytest.raises(gpuprof.CaptureError) as caught:
        open_trace(file)
    assert str(caught.value) == (
        f"{file}: the reader of a_none 1.0 gave NoneType, expected a gpuprof.Capture; "
        "tell the makers of a_none"
    )
    assert said() == [
        "plug-in b_raises 1.0 (gpuprof.readers: it): recognises of raises raised KeyError: 'x'",
        "plug-in c_other 1.0 (gpuprof.readers: it): it recognises log.toy as other, which "
        "a_none 1.0 reads as none",
    ]


def test_a_reader_may_read_what_we_only_name_and_nothing_that_we_read(
    add: Add, tmp_path: Path
) -> None:
    source = reader("any", "return True", "raise ValueError('mine')")
    add("greedy", {"gpuprof.readers": {"it": "greedy:FORMAT"}}, source)
    timeline, trace = tmp_path / "timeline.json", tmp_path / "trace.json"
    timeline.write_text("[[1, 2], [3]]")
    trace.write_text('{"traceEvents": []}')
    with pytest.raises(gpuprof.CaptureError, match=r"the reader of greedy 1\.0 raised .*: mine"):
        open_trace(timeline)
    with pytest.raises(gpuprof.CaptureError, match="no events"):
        open_trace(trace)


def test_tables_that_do_not_fit_each_other_are_told_with_who_gave_them(
    example: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(capture: gpuprof.Capture, rank: int | None) -> Analysis:
        raise ZeroDivisionError("a step of no length")

    monkeypatch.setattr("gpuprof.profiler.traces.analyze", fails)
    with pytest.raises(gpuprof.CommandError) as caught:
        analyze_rank(read_run([LOG], lambda _: None), None)
    assert str(caught.value) == (
        "what gpuprof-example 1.0 (reader a stopwatch log of an Example X1) gave cannot be "
        "analysed: ZeroDivisionError: a step of no length"
    )
    with pytest.raises(ZeroDivisionError):
        analyze_rank(add_work(), None)


RULE = """
from gpuprof.roofline.classes import BottleneckClass, ClassRule
def row(name, mark="square"):
    return BottleneckClass(name=name, meaning="m", part="p", loss="l", has_roof=True, mark=mark,
                           fill="solid", light="#000000", dark="#ffffff", terminal="red")
def failing(work): raise ZeroDivisionError("by nothing")
RULES = (
    ClassRule(row("odd one", mark="moon"), lambda work: None),
    ClassRule(row("Odd"), lambda work: None),
    ClassRule(row("failing"), failing),
    ClassRule(row("number"), lambda work: 7),
    ClassRule(row("first"), lambda work: f"{work.name} is first"),
    ClassRule(row("second"), lambda work: "it is second"),
)
"""


def test_classes_that_are_wrong_leave_the_verdict_to_the_others(add: Add) -> None:
    add("rules", {"gpuprof.classes": {"it": "rules:RULES"}}, RULE)
    capture = CaptureBuilder()
    capture.step("profiled", 0, 4_000_000)
    capture.mm(10, 100, 2048, 2048, 2048)
    capture.kernel(20, 1_000, 2_001_000)
    (point,) = gpuprof.analyze(capture.build(shapes_recorded=True)).ops
    assert point.bottleneck.kind == "first"
    assert point.bottleneck.evidence.endswith("aten::mm is first (says rules 1.0)")
    assert [one.partition("it): ")[2] for one in said()] == [
        f"the class 'odd one' has the mark 'moon': {', '.join(MARKS)}; it is left out",
        "'Odd' is no name of a class: small letters, blanks and hyphens; it is left out",
        "the rule of failing raised ZeroDivisionError: by nothing",
        "the rule of number gave int, expected a sentence or None",
        "second claims aten::mm, which rules 1.0 calls first",
    ]
    assert list(classes())[9:12] == ["failing", "number", "first"]


MARKS = sorted(
    "bowtie circle cross diamond hexagon hourglass pentagon square star".split()
    + "triangle-down triangle-left triangle-right triangle-up x".split()
)
SECTIONS = """
from gpuprof.reports.blocks import Column, Paragraph, Table
from gpuprof.reports.sections.section import Section, titled
def raising(analysis): raise LookupError("nothing here")
ALL = (
    Section("raising", titled("Raising"), body=raising),
    Section("number", titled("A number"), body=lambda analysis: 7),
    Section("cells", titled("Cells"), body=lambda a: [Table((Column("One"),), ((1,),))]),
    Section("fitting", titled("Fitting"), body=lambda a: [Table((Column("One"),), (("1", "2"),))]),
    Section("Bad Key", titled("Bad"), body=lambda a: ()),
    Section("good", titled("Good"), body=lambda a: (Paragraph("All is well."),)),
)
"""


def test_a_section_that_fails_is_a_notice_in_the_report(
    add: Add, training_analysis: Analysis
) -> None:
    add("sections", {"gpuprof.sections": {"it": "sections:ALL"}}, SECTIONS)
    text = render_markdown(training_analysis).replace("\\", "")
    assert "All is well." in text
    for key in ("raising", "number", "cells", "fitting"):
        assert f"The section {key} of sections 1.0 failed." in text
    assert [one.partition("it): ")[2] for one in said()] == [
        "'Bad Key' is no key of a section: small letters and hyphens; it is left out",
        "the section raising raised LookupError: nothing here",
        "the section number raised TypeError: 'int' object is not iterable",
        "the section cells raised ValidationError: Expected `str`, got `int` - at `$.rows[0][0]`",
        "the section fitting raised ValueError: a table has rows of more or fewer cells than it "
        "has columns",
    ]


METERS = """
import polars as pl
from gpuprof.collectors.live.collector import Availability, CollectorRow
class Meter:
    def __init__(self, scope): self.notes = []
    def start(self): pass
    def slow_down(self): pass
    def stop(self): return {"samples": pl.DataFrame({"rank": [0], "power_milliwatts": [7000]})}
def failing(scope): raise OSError("no meter")
def rows(name, make):
    found = Availability(True, "here")
    return CollectorRow(name, "power", False, {"samples": ("power_milliwatts",)},
                        lambda: found, make)
ALL = (rows("NVML", Meter), rows("Meter", Meter), rows("Broken meter", failing))
"""


def test_a_live_collector_records_in_every_run(add: Add) -> None:
    add("meters", {"gpuprof.collectors": {"it": "meters:ALL"}}, METERS)
    collection = LiveCollection(Scope())
    collection.start()
    uses, tables = collection.plugins(), collection.stop_into_tables()
    assert tables["samples"]["power_milliwatts"].to_list() == [7000]
    assert uses == (PluginUse("meters 1.0", "live collector", "Meter"),)
    assert [note.sentence for note in collection.notes(gpu_in_use=False)] == [
        "Broken meter did not start, so power is missing: no meter"
    ]
    assert said()[0].endswith("'NVML' is already a live collector of gpuprof; it is left out")


KERNELS_OF_MINE = """
import torch
from gpuprof.reference_kernels.families import Family
from gpuprof.reference_kernels.suite import KnownWork, Prepared, Problem, Version
class Doubling(Problem):
    family, size_form = "doubling", "N"
    default_sizes = {"cpu": ("8",), "cuda": ("8",)}
    default_dtypes = {"cpu": ("fp32",), "cuda": ("fp32",)}
    tolerance = 0.0
    def __init__(self, size, dtype, device, *, seed=0):
        super().__init__(size, dtype, device, seed=seed)
        self.input = self.random(int(size), dtype=torch.float32)
    def work(self): return KnownWork((), self.input.nbytes, self.input.nbytes)
    def reference(self): return (2 * self.input.double(),)
def prepare(problem):
    output = torch.empty_like(problem.input)
    return Prepared(lambda: torch.mul(problem.input, 2, out=output), (output,))
def version(family, name, implementation="mine"):
    return Version(family, name, "doubles", ("fp32",), ("cpu",), implementation=implementation)
ALL = (
    Family("doubling", Doubling, (version("doubling", "plain"),)),
    version("softmax", "torch"),
    version("softmax", "nowhere", ""),
    Family("other", Doubling, (version("doubling", "plain2"),)),
    Family("untrue", int, ()),
)
"""


def test_a_family_of_a_plug_in_is_checked_and_timed_as_ours_are(add: Add) -> None:
    add("mine", {"gpuprof.reference_kernels": {"it": "mine:ALL"}}, KERNELS_OF_MINE)
    (family,) = select(["doubling"])
    plan = BenchPlan(family, "64", "fp32")
    options = BenchOptions(torch.device("cpu"), 0, 0.01, HostClock(), Alone())
    (case,) = run_plan(plan, options)
    assert isinstance(case, CaseResult)
    assert (case.error, case.relative_error, case.bytes_moved) == (None, 0.0, 2 * 64 * 4)
    assert case.note == "from the plug-in mine 1.0"
    assert [one.partition("it): ")[2] for one in said()] == [
        "'softmax/torch' is already a reference kernel of gpuprof; it is left out",
        "softmax/nowhere names no module with a function prepare (implementation); it is left out",
        "doubling/plain2 is no version of other; it is left out",
        "the problem of untrue is no gpuprof.reference_kernels.suite.Problem; it is left out",
    ]


def test_the_analysis_of_a_foreign_trace_needs_no_torch(tmp_path: Path) -> None:
    install_project(tmp_path, EXAMPLE)
    code = f"""
import sys
from pathlib import Path
import gpuprof
from gpuprof.profiler.traces import analyze_rank, read_run
from gpuprof.reports.html.page import render_html
analysis = gpuprof.analyze(read_run([Path({str(LOG)!r})], lambda _: None))
assert "example-sizes" in render_html(analysis)
assert len(analysis.plugins) == 4
print(*sys.modules)
"""
    path = os.pathsep.join([str(tmp_path), str(EXAMPLE), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "torch" not in done.stdout.split()
    assert "gpuprof_example.kernels" not in done.stdout.split()


def test_a_stored_analysis_is_made_again_where_it_asked_no_plug_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture = add_work("example::scaled_add")
    folder = captures.store(capture, gpuprof.analyze(capture), tmp_path / "a.gpuprof")
    assert captures.read_stored_analysis(folder) is not None
    install_project(tmp_path / "site", EXAMPLE)
    with nothing_loaded(monkeypatch, tmp_path / "site", EXAMPLE):
        assert captures.read_stored_analysis(folder) is None
        stored = msgspec.structs.replace(
            gpuprof.analyze(capture), plugins=(PluginUse("gpuprof-example 1.0", "class", "narrow"),)
        )
        captures.store(capture, stored, folder)
        assert captures.read_stored_analysis(folder) == stored
    # Its class is not known here.
    with nothing_loaded(monkeypatch):
        monkeypatch.setenv("GPUPROF_PLUGINS", "0")
        assert captures.read_stored_analysis(folder) is None
        assert CLASSES.load() == ()
        (check,) = plugin_checks(with_torch=True)
        assert (check.state, check.finding) == ("no", "switched off by GPUPROF_PLUGINS")
