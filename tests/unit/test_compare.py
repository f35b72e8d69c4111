"""Two analyses compared, and what every form of the comparison says of them."""

from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from gpuprof.collectors.manifest import Device, Fingerprint
from gpuprof.profiler.captures import load_analysis
from gpuprof.profiler.commands.compare import render, verdict
from gpuprof.profiler.traces import analyze_rank, read_run
from gpuprof.reports.comparison import sentences
from gpuprof.reports.comparison.markdown import render_comparison as render_markdown
from gpuprof.reports.comparison.page import render_html
from gpuprof.reports.comparison.terminal import render_comparison
from gpuprof.roofline.analysis import Analysis, DeviceState
from gpuprof.roofline.comparison.causes import causes
from gpuprof.roofline.comparison.compare import compare
from gpuprof.roofline.comparison.result import Comparison
from gpuprof.roofline.step_figures import SplitPart, StepDefinition

ROOT = Path(__file__).parents[2]
RECORDINGS = ROOT / "tests" / "data" / "kineto"


@cache
def recorded(name: str) -> Analysis:
    """The analysis of one of the recordings of a Llama block on an H100."""
    path = RECORDINGS / f"h100_block_{name}.json.gz"
    return analyze_rank(read_run([path], lambda _: None), None)


@pytest.fixture
def eager_to_compiled() -> Comparison:
    return compare(recorded("infer_fp16"), recorded("compile"))


def slower(analysis: Analysis, name: str, factor: float) -> Analysis:
    """`analysis` with the kernels of one operator and the step stretched."""
    added = 0
    kernels = []
    for point in analysis.kernels:
        if point.op == name:
            device_ns = round(point.device_ns * factor)
            added += device_ns - point.device_ns
            point = msgspec.structs.replace(point, device_ns=device_ns)
        kernels.append(point)
    steps, split = analysis.steps, analysis.split
    assert added
    assert split is not None
    assert steps.median_ns is not None
    assert steps.profiled_median_ns is not None
    each = added // steps.profiled
    exposed = analysis.exposed
    assert exposed is not None
    return msgspec.structs.replace(
        analysis,
        kernels=tuple(kernels),
        exposed=msgspec.structs.replace(exposed, computing_ns=exposed.computing_ns + each),
        split=msgspec.structs.replace(
            split,
            step_ns=split.step_ns + each,
            parts=(*split.parts, SplitPart("compute", each)),
        ),
        steps=msgspec.structs.replace(
            steps,
            median_ns=steps.median_ns + each,
            profiled_mean_ns=(steps.profiled_mean_ns or 0) + each,
        ),
    )


def parts_sum(comparison: Comparison) -> float:
    assert comparison.step is not None
    return sum(part.change_ns for part in sentences.parts(comparison.step))


def test_compiling_fuses_elementwise_kernels_and_saves_waiting(
    eager_to_compiled: Comparison,
) -> None:
    step = eager_to_compiled.step
    assert step is not None
    assert step.lengths.quantity == "profiled step time"
    fused = [change for change in eager_to_compiled.kernels if change.match == "fused"]
    assert len(fused) == 2
    assert all(change.change_ns < 0 for change in fused)
    assert {change.match for change in eager_to_compiled.kernels} == {"name", "fused"}
    assert causes(eager_to_compiled)[0].kind == "waiting"
    # The products are the same kernels: they differ by less than 1 %.
    for change in eager_to_compiled.kernels:
        if change.base is not None and change.base.op == "aten::mm" and change.match == "name":
            assert abs(change.change_ns) < 0.02 * change.base.device_ns + 100


def test_a_graph_replay_has_the_same_kernels_without_operators() -> None:
    found = compare(recorded("infer_fp16"), recorded("cudagraph"))

    assert {change.match for change in found.kernels} == {"name"}
    assert not found.renamed
    assert causes(found)[0].name == "waiting for the host"
    lost = compare(recorded("cudagraph"), recorded("infer_fp16"))
    assert lost.step is not None
    assert lost.step.change_ns > 0
    assert causes(lost)[0].name == "waiting for the host"


def test_replays_that_are_launched_one_by_one_are_no_new_kernels() -> None:
    """On an H100: of 40 replays of a graph of 60 kernels two were lost."""
    base, head = (
        load_analysis(ROOT / "tests" / "data" / "captures" / name)
        for name in ("h100_cuda_graph", "h100_lost_cuda_graph")
    )

    found = compare(base, head)

    for change in found.kernels:
        assert change.match == "name"
        assert change.base is not None
        assert change.head is not None
        assert change.base.calls == change.head.calls == 800
        assert abs(change.change_ns) < 0.01 * change.base.device_ns
    first = causes(found)[0]
    assert first.name == "waiting for the host"
    assert first.change_ns > 100_000
    # The other way round, too: capturing a graph removes no kernel.
    assert {change.match for change in compare(head, base).kernels} == {"name"}


@pytest.mark.parametrize("head", ["compile", "cudagraph", "train_bf16", "infer_fp16"])
def test_the_parts_add_up_to_the_change(head: str) -> None:
    found = compare(recorded("infer_fp16"), recorded(head))

    assert found.step is not None
    assert parts_sum(found) == pytest.approx(found.step.change_ns, abs=1)
    assert abs(found.step.unexplained_ns) < 0.02 * found.step.lengths.base_ns


def test_a_capture_against_itself_has_not_changed() -> None:
    found = compare(recorded("infer_fp16"), recorded("infer_fp16"))

    assert found.step is not None
    assert found.step.change_ns == 0
    assert found.step.unexplained_share is None
    assert {change.change_ns for change in found.kernels} == {0}
    assert found.strict_differences == found.advisory_differences == ()


@pytest.mark.parametrize("op", ["aten::mm", "aten::mul", "aten::native_layer_norm"])
def test_a_slower_operator_is_the_first_cause(op: str) -> None:
    found = compare(recorded("infer_fp16"), slower(recorded("infer_fp16"), op, 1.2))

    first = causes(found)[0]
    assert first.kernel is not None
    assert first.kernel.side.op == op
    assert first.change_ns > 0
    carried = sum(c.change_ns for c in causes(found) if c.kernel and c.kernel.side.op == op)
    assert found.step is not None
    assert carried == pytest.approx(found.step.change_ns, rel=0.01)


def test_timed_steps_come_first_where_both_sides_have_some(training_analysis: Analysis) -> None:
    found = compare(training_analysis, training_analysis)

    assert found.lengths is not None
    assert found.lengths.quantity == "step time"
    assert found.lengths.base_ns == training_analysis.steps.median_ns
    mixed = compare(recorded("infer_fp16"), training_analysis)
    assert mixed.lengths is not None
    assert mixed.lengths.quantity == "profiled step time"


def test_exposed_communication_is_a_part_of_its_own() -> None:
    base = recorded("infer_fp16")
    assert base.exposed is not None

    def communicating(nanoseconds: int) -> Analysis:
        exposed = msgspec.structs.replace(base.exposed, communication_ns=nanoseconds)
        return msgspec.structs.replace(base, exposed=exposed)

    step = compare(communicating(1_000), communicating(4_000)).step

    assert step is not None
    assert step.communication_ns == 3_000
    # The step did not change: what communicates longer waits shorter.
    assert step.idle_ns == -3_000


def with_basis(analysis: Analysis, basis: StepDefinition) -> Analysis:
    assert analysis.split is not None
    return msgspec.structs.replace(
        analysis, split=msgspec.structs.replace(analysis.split, basis=basis)
    )


def test_a_profiled_step_is_that_of_its_split_and_definitions_that_differ_are_said() -> None:
    base = recorded("infer_fp16")
    found = compare(base, with_basis(base, "device period"))
    assert base.split is not None
    assert found.step is not None
    assert found.step.lengths.base_ns == base.split.step_ns == base.steps.length_ns
    assert any("(host range in the base, device period in the head)" in n for n in found.notes)


def test_whole_traces_are_compared_with_each_other_and_never_with_a_step() -> None:
    base = recorded("infer_fp16")
    whole = with_basis(base, "whole trace")
    both, one = compare(whole, whole), compare(base, whole)
    assert both.step is not None
    assert one.step is not None
    assert both.step.lengths.quantity == "whole trace"
    assert any("nothing marks steps" in note for note in both.notes)
    assert one.step.lengths.quantity == "device time"


def test_without_steps_device_time_is_compared(
    bare_analysis: Analysis, training_analysis: Analysis
) -> None:
    nothing = compare(bare_analysis, bare_analysis)
    half = compare(bare_analysis, training_analysis)

    assert nothing.step is None
    assert nothing.lengths is None
    assert causes(nothing) == ()
    assert half.step is not None
    assert half.step.lengths.quantity == "device time"
    assert half.step.idle_ns is None
    assert any("device time is compared" in note for note in half.notes)


def test_another_gpu_is_named_before_anything_else() -> None:
    base = recorded("infer_fp16")
    other = Device(index=0, kind="cuda", name="NVIDIA A100-SXM4-80GB")
    head = msgspec.structs.replace(base, fingerprint=Fingerprint(devices=(other,)))

    found = compare(base, head)

    assert any("NVIDIA A100-SXM4-80GB" in text for text in found.strict_differences)
    assert "cannot be compared" in sentences.warnings(found)[0]
    assert verdict(found, 10.0) == 3


def test_a_slower_clock_and_throttling_are_said(training_analysis: Analysis) -> None:
    def at(clock: int, *reasons: str) -> Analysis:
        state = DeviceState(samples=9, sm_clock_mhz_median=clock, throttle_reasons=reasons)
        return msgspec.structs.replace(training_analysis, device_state=state)

    notes = compare(at(1980), at(1700, "thermal slowdown")).notes

    assert any("1980 MHz" in note and "1700 MHz" in note for note in notes)
    assert any("thermal slowdown" in note for note in notes)
    assert not any("MHz" in note for note in compare(at(1980), at(1975)).notes)


def test_a_change_within_the_spread_is_said_to_be(training_analysis: Analysis) -> None:
    median_ns = training_analysis.steps.median_ns
    assert median_ns is not None

    def spread(share: float) -> Comparison:
        steps = msgspec.structs.replace(
            training_analysis.steps, relative_spread=share, median_ns=round(median_ns * 1.02)
        )
        return compare(training_analysis, msgspec.structs.replace(training_analysis, steps=steps))

    assert "within the spread" in sentences.caution(spread(0.9))
    assert (
        sentences.caution(
            msgspec.structs.replace(
                spread(0.001),
                base=msgspec.structs.replace(spread(0.001).base, relative_spread=0.001),
            )
        )
        == ""
    )


def test_exit_codes_of_fail_on() -> None:
    base = recorded("infer_fp16")
    head = slower(base, "aten::mm", 1.2)
    change = compare(base, head).lengths
    assert change is not None
    assert change.change is not None

    assert verdict(compare(base, head), change.change * 0.9) == 1
    assert verdict(compare(base, head), change.change * 1.1) == 0
    assert verdict(compare(head, base), 0.0) == 0


def printed(comparison: Comparison, width: int) -> str:
    console = Console(width=width, record=True, file=None, force_terminal=False)
    with console.capture() as captured:
        render_comparison(comparison, console, top=5)
    return captured.get()


@pytest.mark.parametrize("width", [80, 140])
def test_the_terminal_names_the_change_and_what_carries_it(
    eager_to_compiled: Comparison, width: int
) -> None:
    text = printed(eager_to_compiled, width)

    assert "1.870 ms → 1.531 ms" in text
    assert "waiting for the host" in text
    assert "aten::mul, aten::silu →" in text
    assert max(map(len, text.splitlines())) <= width


def test_renamed_new_and_gone_kernels_have_lists_of_their_own() -> None:
    base = recorded("infer_fp16")
    kernels = [
        msgspec.structs.replace(point, name="splitk_gemm") if point.op == "aten::mm" else point
        for point in base.kernels
        if point.op != "aten::silu"
    ]
    new = msgspec.structs.replace(base.kernels[-1], name="brand_new", op="mylib::op")
    found = compare(base, msgspec.structs.replace(base, kernels=(*kernels, new)))

    text, markdown = printed(found, 120), render_markdown(found, top=5)

    # Kernels of each operator signature and the memsets beside them are told apart.
    renamed = {change.name for change in found.renamed}
    assert all(name.endswith(" -> splitk_gemm") for name in renamed)
    assert renamed
    for title, number in (("New", 1), ("Gone", 1), ("Renamed", len(found.renamed))):
        assert f"{title}: {number}" in text
        assert f"<summary>{title}: {number}</summary>" in markdown


def test_what_is_waited_for_is_compared_by_cause(training_analysis: Analysis) -> None:
    split = training_analysis.split
    assert split is not None
    others = tuple(part for part in split.parts if part.kind != "launch")
    waits = split.nanoseconds("launch")
    slower = msgspec.structs.replace(
        training_analysis,
        split=msgspec.structs.replace(
            split,
            step_ns=split.step_ns + 3_000_000,
            parts=(
                *others,
                SplitPart("data loader", 3_500_000),
                SplitPart("launch", waits - 500_000),
            ),
        ),
    )
    step = compare(training_analysis, slower).step
    assert step is not None
    changes = {one.kind: one.change_ns for one in step.waiting}
    assert changes == {"data loader": 3_500_000, "launch": -500_000}
    (part,) = [part for part in sentences.parts(step) if part.key == "waiting"]
    assert part.note == "waiting for the data loader +3.50 ms, waiting for launches -500 µs"


def test_json_is_the_comparison(eager_to_compiled: Comparison) -> None:
    text = render(eager_to_compiled, ".json", top=5)

    assert msgspec.json.decode(text, type=Comparison) == eager_to_compiled


class _Page(HTMLParser):
    """Collects references, tags and text, and checks that tags are balanced."""

    def __init__(self) -> None:
        super().__init__()
        self.references: list[str] = []
        self.open: list[str] = []
        self.text = ""
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.references += [value for key, value in attrs if key in ("src", "href") and value]
        if tag not in ("meta", "link", "input", "col", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.text += data


def page_of(comparison: Comparison) -> _Page:
    page = _Page()
    page.feed(render_html(comparison))
    page.close()
    assert not page.open
    return page


def test_the_page_needs_no_network_and_has_a_row_for_each_kernel(
    eager_to_compiled: Comparison,
) -> None:
    page = page_of(eager_to_compiled)

    assert all(reference.startswith(("#", "data:")) for reference in page.references)
    # One a kernel, and one for the parts of the step.
    assert page.tags.count("details") == len(eager_to_compiled.kernels) + 1
    assert "-18.1%" in page.text


def test_shapes_read_as_people_write_them(eager_to_compiled: Comparison) -> None:
    change = eager_to_compiled.kernels[0]
    assert change.head is not None
    side = msgspec.structs.replace(
        change.head,
        op="aten::mm",
        shapes='[[4096, 11008], [11008, 4096]] ["c10::BFloat16", "c10::BFloat16"]',
    )
    product = msgspec.structs.replace(change, match="new", base=None, head=side)
    found = msgspec.structs.replace(eager_to_compiled, kernels=(product,))

    page = page_of(found)
    assert "4096x11008x4096 bf16" in page.text
    assert "[[4096" not in page.text


def test_names_cannot_break_any_form(eager_to_compiled: Comparison) -> None:
    evil = "<script>alert(1)</script>|`*\x1b[31m[red]"
    change = eager_to_compiled.kernels[0]
    assert change.head is not None
    bad = msgspec.structs.replace(
        change,
        match="new",
        base=None,
        head=msgspec.structs.replace(change.head, name=evil, op=evil),
    )
    found = msgspec.structs.replace(
        eager_to_compiled,
        kernels=(bad,),
        strict_differences=(evil,),
        base=msgspec.structs.replace(eager_to_compiled.base, title=evil),
    )

    assert page_of(found).tags.count("script") == 1
    assert "\x1b" not in printed(found, 200)
    assert "[red]" in printed(found, 400)
    markdown = render_markdown(found, top=5)
    assert "<script" not in markdown.replace("\\<script", "")


def test_nothing_to_compare_has_every_form(bare_analysis: Analysis) -> None:
    found = compare(bare_analysis, bare_analysis)

    assert "Nothing to compare" in printed(found, 80)
    assert "Nothing to compare" in render_markdown(found, top=5)
    assert "Neither capture holds device work" in page_of(found).text
    assert verdict(found, 0.05) == 3
