"""Modules: which repeat, what each takes, and what a report says of them."""

import msgspec
import pytest
from capture_builder import CaptureBuilder

from gpuprof.collectors.capture import Capture
from gpuprof.reports.blocks import Facts, Table
from gpuprof.reports.sections.modules import SECTION
from gpuprof.roofline.analysis import Analysis, Bottleneck
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.module_figures import ModuleWork, SourceLine
from gpuprof.roofline.step_figures import SplitPart, StepSplit
from gpuprof.roofline.work.module_folding import folded_paths


@pytest.mark.parametrize(
    ("paths", "folded"),
    [
        # Blocks of a list, and what stands in them.
        (
            ["layers.0", "layers.0.attn.q", "layers.1.attn.q", "head"],
            ["layers.*", "layers.*.attn.q", "layers.*.attn.q", "head"],
        ),
        # Layers of a sequence are not alike.
        (["net.0", "net.2"], ["net.0", "net.2"]),
        # One block does not repeat.
        (["layers.0.q", "layers.0.k"], ["layers.0.q", "layers.0.k"]),
        # Blocks in blocks.
        (["a.0.b.0.c", "a.1.b.0.c", "a.1.b.1.c"], ["a.*.b.*.c"] * 3),
        # Numbers behind a name; those of leaves tell them apart.
        (
            ["layers.encoder_layer_0.mlp", "layers.encoder_layer_1.mlp", "conv_1", "conv_2"],
            ["layers.encoder_layer_*.mlp"] * 2 + ["conv_1", "conv_2"],
        ),
    ],
)
def test_blocks_that_repeat_have_one_path(paths: list[str], folded: list[str]) -> None:
    assert [folded_paths(paths)[path] for path in paths] == folded


def two_layers_and_a_head(build: CaptureBuilder) -> Capture:
    """Equal products: one in each of two layers, backward too, one in a head, one in no module."""
    layer = {"file": "train.py", "line": 10, "function": "forward", "function_line": 9}
    calls: list[dict[str, object]] = [
        {"module": "layers.0.proj", **layer},
        {"module": "layers.1.proj", **layer},
        {"module": "head", **layer, "line": 20},
        {**layer, "line": 20},
    ]
    for number, place in enumerate(calls):
        start = 1000 * number
        build.mm(start, start + 500, sequence=number, **place)
        build.kernel(start + 10, 10_000 + 1000 * number, 10_100 + 1000 * number)
    node = build.op("MmBackward0", 5000, 5500, sequence=1, thread=2, **calls[1])
    build.mm(5010, 5400, thread=2, parent_id=node, **calls[1])
    build.kernel(5020, 20_000, 20_300, thread=2)
    return build.build()


@pytest.fixture
def analysis(build: CaptureBuilder) -> Analysis:
    return analyze(two_layers_and_a_head(build))


def row(analysis: Analysis, path: str) -> ModuleWork:
    assert analysis.modules is not None
    (found,) = [each for each in analysis.modules.rows if each.path == path]
    return found


def test_equal_products_of_two_modules_are_two_rows(analysis: Analysis) -> None:
    found = {(op.module, op.phase): (op.calls, op.device_ns, op.source) for op in analysis.ops}
    layer, other = (
        SourceLine("train.py", 10, "forward", 9),
        SourceLine("train.py", 20, "forward", 9),
    )
    phases = {phase for module, phase in found if module == "layers.*.proj"}
    assert "backward" in phases
    (forward,) = phases - {"backward"}
    assert found["layers.*.proj", forward] == (2, 200, layer)
    assert found["layers.*.proj", "backward"] == (1, 300, layer)
    assert found["head", forward] == (1, 100, other)
    assert found["", forward] == (1, 100, other)


def test_a_module_holds_what_is_in_it_and_all_device_time_is_somewhere(analysis: Analysis) -> None:
    tree = analysis.modules
    assert tree is not None
    assert sum(each.own_ns for each in tree.rows) == 700
    assert sum(each.device_ns for each in tree.rows if each.depth == 0) == 700
    assert tree.with_line == 1.0
    assert tree.with_module == pytest.approx(6 / 7)
    layers = row(analysis, "layers.*.proj")
    assert (layers.instances, layers.device_ns, layers.own_ns) == (2, 500, 500)
    # By hand: three products of 64 x 32 and 32 x 16.
    assert layers.flops == 3 * 2 * 64 * 32 * 16
    assert layers.counted_fraction == 1.0
    (product,) = layers.operators
    assert product.name == "aten::mm"
    assert {each.phase: each.device_ns for each in product.phases}["backward"] == 300
    assert row(analysis, "").device_ns == 100


def test_the_report_names_modules_and_lines(analysis: Analysis) -> None:
    (modules, *_) = [block for block in SECTION.body(analysis) if isinstance(block, Table)]
    assert [cells[0] for cells in modules.rows] == ["layers.*.proj", "(no module)", "head"]
    (facts,) = SECTION.summary(analysis)
    assert isinstance(facts, Facts)
    assert facts.facts[0].value == "layers.*.proj"


@pytest.mark.parametrize(("gain_ns", "named"), [(9, False), (11, True)])
def test_a_line_that_gains_next_to_nothing_of_a_step_is_not_named(
    analysis: Analysis, gain_ns: int, named: bool
) -> None:
    largest, *others = (point for point in analysis.ops if point.source is not None)
    gains = msgspec.structs.replace(largest.bottleneck, gain_ns=gain_ns)
    none = Bottleneck("memory", "", 0)
    nothing = (msgspec.structs.replace(each, bottleneck=none) for each in others)
    changed = msgspec.structs.replace(
        analysis,
        ops=(msgspec.structs.replace(largest, bottleneck=gains), *nothing),
        split=StepSplit(step_ns=1000, basis="timed", parts=(SplitPart("memory", 1000),)),
        binds=None,
        advice=(),
    )
    (facts,) = SECTION.summary(changed)
    assert isinstance(facts, Facts)
    assert ("Line" in [fact.label for fact in facts.facts]) is named


def test_without_modules_and_lines_there_is_no_section(build: CaptureBuilder) -> None:
    build.mm(0, 50, 64)
    build.kernel(10, 1000, 1010)
    analysis = analyze(build.build())
    assert analysis.modules is None
    assert not SECTION.body(analysis)
    assert not SECTION.summary(analysis)
