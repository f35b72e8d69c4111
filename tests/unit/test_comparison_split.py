"""The change of a step by kind of time, by line and by module: parts that add up, and words."""

from functools import cache
from itertools import permutations
from pathlib import Path

import msgspec
import pytest

from gpuprof.profiler.captures import load_analysis
from gpuprof.profiler.traces import analyze_rank, read_run
from gpuprof.reports.comparison.headline import headline
from gpuprof.reports.comparison.markdown import render_comparison
from gpuprof.reports.comparison.places import line_rows
from gpuprof.reports.comparison.sentences import figure_facts, warnings
from gpuprof.reports.comparison.waterfall import waterfalls
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.comparison.compare import compare
from gpuprof.roofline.idle_figures import IdleCause, IdleCulprit, IdleTime
from gpuprof.roofline.module_figures import ModuleOperator, ModuleTree, ModuleWork, SourceLine
from gpuprof.roofline.step_figures import SplitPart, StepContent, StepSplit

DATA = Path(__file__).parents[1] / "data"
# Timed and profiled steps, without a profiler's stretch and with it, two ranks of a job.
KINDS = (
    "captures/h100_llama_block",
    "captures/h100_attention_head",
    "captures/h100_lost_cuda_graph",
    "diagnosis/cuda_graph",
    "diagnosis/slow_loader_disk",
    "ranks/straggler_rank0.json.gz",
    "ranks/straggler_rank3.json.gz",
)


@cache
def recorded(name: str) -> Analysis:
    path = DATA / name
    if name.endswith(".json.gz"):
        return analyze_rank(read_run([path], lambda _: None), None)
    return load_analysis(path)


@pytest.mark.parametrize(("base", "head"), list(permutations(KINDS, 2)))
def test_the_parts_of_any_two_steps_add_up_to_the_difference(base: str, head: str) -> None:
    found = compare(recorded(base), recorded(head))

    assert found.step is not None
    lengths = found.step.lengths
    if lengths.quantity == "device time":
        assert found.kinds == ()
        return
    assert sum(kind.base_ns for kind in found.kinds) == lengths.base_ns
    assert sum(kind.head_ns for kind in found.kinds) == lengths.head_ns
    assert all(min(kind.base_ns, kind.head_ns) >= 0 for kind in found.kinds)


@pytest.mark.parametrize(
    ("base", "head"),
    list(
        permutations(
            ("diagnosis/cuda_graph", "diagnosis/slow_loader_disk", "diagnosis/tiny_operators"), 2
        )
    ),
)
def test_modules_and_lines_add_up_to_the_change_of_device_work(base: str, head: str) -> None:
    before, after = recorded(base), recorded(head)
    found = compare(before, after)
    work = [
        sum(kernel.device_ns for kernel in one.kernels) / one.steps.profiled
        for one in (before, after)
    ]

    assert sum(m.own_change_ns for m in found.modules) == pytest.approx(work[1] - work[0])
    assert sum(line.change_ns for line in found.lines) == pytest.approx(work[1] - work[0])


def test_a_cpus_parts_add_up_too() -> None:
    block = recorded("captures/h100_llama_block")
    longer = slower_by(block, "outside", 5_000_000)
    assert longer.split is not None
    # A CPU's operators are those of profiled steps.
    split = msgspec.structs.replace(longer.split, basis="host range")
    on_cpu = msgspec.structs.replace(longer, split=split)

    for pair in ((on_cpu, on_cpu), (block, on_cpu)):
        found = compare(*pair)
        assert found.step is not None
        assert found.step.idle_name == "outside of operators"
        assert sum(kind.change_ns for kind in found.kinds) == found.step.change_ns
        assert any(kind.part == "outside of operators" for kind in found.kinds)


def test_classes_are_told_apart_where_both_steps_are_of_one_kind_and_else_as_far_as_known() -> None:
    timed, stretched = recorded("captures/h100_llama_block"), recorded("diagnosis/cuda_graph")

    alike = compare(timed, recorded("captures/h100_attention_head")).kinds
    mixed = compare(timed, stretched).kinds

    assert {kind.kind for kind in alike} >= {"roof", "compute", "memory"}
    assert [kind.part for kind in mixed] == ["computing", "waiting for the host"]


def call(
    line: int, operator: str, device_ns: int, *, module: str = "block", file: str = "model.py"
) -> tuple[str, ModuleOperator]:
    return module, ModuleOperator(
        name=operator,
        source=SourceLine(file, line, "Block.forward", 10),
        device_ns=device_ns,
        device_fraction=0.0,
        kind="memory",
    )


def with_lines(
    analysis: Analysis, *calls: tuple[str, ModuleOperator], waits: tuple[IdleCulprit, ...] = ()
) -> Analysis:
    """`analysis` as if these lines called all of its device work, and the last ones waited."""
    rows = tuple(
        ModuleWork(
            path=path,
            depth=0,
            device_ns=sum(each.device_ns for module, each in calls if module == path),
            own_ns=sum(each.device_ns for module, each in calls if module == path),
            device_fraction=0.0,
            flops=0,
            bytes=0,
            counted_fraction=0.0,
            kind="memory",
            operators=tuple(each for module, each in calls if module == path),
        )
        for path in dict.fromkeys(module for module, _ in calls)
    )
    cause = IdleCause(
        kind="data loader",
        nanoseconds=sum(each.nanoseconds for each in waits),
        profiled_ns=sum(each.profiled_ns for each in waits),
        culprits=waits,
    )
    return msgspec.structs.replace(
        analysis,
        modules=ModuleTree(with_module=1.0, with_line=1.0, rows=rows),
        idle=IdleTime(nanoseconds=0, profiled_ns=0, basis="timed", causes=(cause,)),
    )


def wait(place: str, nanoseconds: int) -> IdleCulprit:
    return IdleCulprit(
        what="next batch",
        place=place,
        calls_per_step=1.0,
        nanoseconds=nanoseconds,
        profiled_ns=nanoseconds,
    )


def test_a_line_inserted_above_moves_lines_and_changes_none() -> None:
    block = recorded("captures/h100_llama_block")
    steps = block.steps.profiled
    base = with_lines(
        block,
        call(12, "aten::linear", 300 * steps),
        call(13, "aten::linear", 600 * steps),
        waits=(wait("model.py:14", 9_000),),
    )
    head = with_lines(
        block,
        call(12, "aten::layer_norm", 50 * steps),
        call(13, "aten::linear", 300 * steps),
        call(14, "aten::linear", 900 * steps),
        waits=(wait("model.py:15", 12_000),),
    )

    found = {(line.base, line.head): line for line in compare(base, head).lines}

    assert found[("model.py:12", "model.py:13")].change_ns == 0
    assert found[("model.py:13", "model.py:14")].change_ns == 300
    assert found[("", "model.py:12")].change_ns == 50
    # Nothing is called there: it lies as far from its neighbours as before.
    assert found[("model.py:14", "model.py:15")].waiting_change_ns == 3_000
    assert len(found) == 4


def test_a_line_that_calls_another_operator_is_the_same_line() -> None:
    block = recorded("captures/h100_llama_block")
    base = with_lines(block, call(12, "aten::scaled_dot_product_attention", 300))
    head = with_lines(block, call(12, "aten::softmax", 900), call(12, "aten::matmul", 900))

    (line,) = compare(base, head).lines

    assert (line.base, line.head) == ("model.py:12", "model.py:12")
    assert set(line.operators) == {"aten::softmax", "aten::matmul"}


def test_the_programs_own_file_is_the_same_whatever_it_is_called() -> None:
    block = recorded("captures/h100_llama_block")
    before, after = (
        msgspec.structs.replace(
            with_lines(block, call(20, "aten::linear", ns, file=f"runs/{title}")), title=title
        )
        for title, ns in (("before.py", 300), ("after.py", 600))
    )

    (line,) = compare(before, after).lines

    assert (line.base, line.head) == ("runs/before.py:20", "runs/after.py:20")


def test_waiting_that_the_other_side_may_have_left_out_is_unknown() -> None:
    block = recorded("captures/h100_llama_block")
    base = with_lines(block, call(12, "aten::linear", 300), waits=(wait("model.py:30", 5_000),))
    assert base.idle is not None
    (cause,) = base.idle.causes
    shortened = msgspec.structs.replace(
        base,
        idle=msgspec.structs.replace(
            base.idle, causes=(msgspec.structs.replace(cause, others=3, others_ns=8_000),)
        ),
    )
    head = with_lines(block, call(12, "aten::linear", 300), waits=(wait("model.py:40", 9_000),))

    def change(before: Analysis) -> float | None:
        lines = compare(before, head).lines
        return next(line.waiting_change_ns for line in lines if line.head == "model.py:40")

    assert change(base) == 9_000
    assert change(shortened) is None


def slower_by(analysis: Analysis, kind: str, nanoseconds: int) -> Analysis:
    split, steps = analysis.split, analysis.steps
    assert split is not None
    assert steps.median_ns is not None
    return msgspec.structs.replace(
        analysis,
        steps=msgspec.structs.replace(steps, median_ns=steps.median_ns + nanoseconds),
        split=StepSplit(
            step_ns=split.step_ns + nanoseconds,
            basis=split.basis,
            parts=(*split.parts, SplitPart(kind, nanoseconds)),
        ),
    )


def test_one_sentence_says_by_how_much_because_of_what_and_where() -> None:
    block = recorded("captures/h100_llama_block")
    base = with_lines(block, call(12, "aten::linear", 300), waits=(wait("train.py:9", 1_000),))
    head = slower_by(
        with_lines(block, call(12, "aten::linear", 300), waits=(wait("train.py:9", 4_001_000),)),
        "data loader",
        4_000_000,
    )

    found, back = compare(base, head), compare(head, base)

    assert headline(found) == (
        "Slower: step time 9.770 ms → 13.77 ms (+4.00 ms, +40.9%), mostly waiting for the data "
        "loader (+4.00 ms), at train.py:9"
    )
    assert headline(back) == (
        "Faster: step time 13.77 ms → 9.770 ms (-4.00 ms, -29.0%), mostly waiting for the data "
        "loader (-4.00 ms), at train.py:9"
    )
    assert headline(compare(base, base)) == "No change: step time 9.770 ms"
    assert render_comparison(found, top=3).startswith("## Slower: step time 9.770 ms")


def test_a_change_within_the_spread_has_no_verdict_and_no_cause() -> None:
    block = recorded("captures/h100_llama_block")
    noisy = msgspec.structs.replace(
        block, steps=msgspec.structs.replace(block.steps, relative_spread=0.5)
    )

    found = compare(noisy, slower_by(noisy, "launch", 1_000_000))

    assert headline(found).startswith("No clear change: step time")
    assert "launches" not in headline(found)


def test_without_lines_the_operator_is_named() -> None:
    attention = compare(
        recorded("captures/h100_attention_base"), recorded("captures/h100_attention_head")
    )
    assert "in aten::masked_fill_" in headline(attention)
    assert line_rows(attention) == ()


@pytest.mark.parametrize("head", ["captures/h100_attention_head", "diagnosis/cuda_graph"])
def test_a_waterfall_goes_from_the_bases_step_to_the_heads(head: str) -> None:
    found = compare(recorded("captures/h100_llama_block"), recorded(head))
    assert found.step is not None
    lengths = found.step.lengths

    for drawing in waterfalls(found):
        first, *parts, last = drawing.bars
        per_ns = (last.end - first.end) / lengths.change_ns
        at = first.end
        changes = [kind.change_ns for kind in found.kinds if kind.change_ns]
        assert len(parts) == len(changes)
        for bar, change_ns in zip(parts, changes, strict=True):
            assert at in (
                pytest.approx(bar.x, abs=0.02),
                pytest.approx(bar.x + bar.width, abs=1),
            )
            at += change_ns * per_ns
            assert bar.end == pytest.approx(at, abs=0.1)
        assert at == pytest.approx(last.end, abs=0.1)
        assert all(0 <= bar.x and bar.x + bar.width <= drawing.width for bar in drawing.bars)


def test_a_change_of_one_per_cent_is_noise_however_alike_the_steps_are() -> None:
    block = recorded("captures/h100_llama_block")
    steady = msgspec.structs.replace(
        block, steps=msgspec.structs.replace(block.steps, relative_spread=0.0001)
    )
    assert block.steps.median_ns is not None
    one_per_cent = block.steps.median_ns // 100

    small = compare(steady, slower_by(steady, "launch", one_per_cent - 1000))
    large = compare(steady, slower_by(steady, "launch", one_per_cent + 1000))

    assert headline(small).startswith("No clear change: ")
    assert any("differ by up to 1.0%" in text for text in warnings(small))
    assert headline(large).startswith("Slower: ")
    assert warnings(large) == ()


def test_other_work_is_said_and_figures_stand_before_and_after() -> None:
    block = recorded("captures/h100_llama_block")
    assert block.utilization is not None
    assert block.utilization.mfu is not None
    doubled = msgspec.structs.replace(
        block,
        utilization=msgspec.structs.replace(
            block.utilization,
            model_flops=2 * block.utilization.model_flops,
            mfu=block.utilization.mfu / 2,
        ),
        steps=msgspec.structs.replace(block.steps, tokens_per_s=1500.0),
    )
    some = msgspec.structs.replace(
        block, steps=msgspec.structs.replace(block.steps, tokens_per_s=1000.0)
    )

    found = compare(some, doubled)

    assert any("2 times the model FLOPs" in text for text in warnings(found))
    assert not any("model FLOPs" in text for text in warnings(compare(block, block)))
    facts = {fact.label: (fact.value, fact.note) for fact in figure_facts(found)}
    before, after = (f"{100 * times * block.utilization.mfu:.1f}%" for times in (1, 0.5))
    assert facts["MFU"] == (f"{before} → {after}", "of bf16 tensor (datasheet, dense)")
    assert facts["Tokens"] == ("1.00 ktokens/s → 1.50 ktokens/s", "+50.0%")
    # Of another peak a share cannot be compared.
    assert doubled.utilization is not None
    other = msgspec.structs.replace(
        doubled, utilization=msgspec.structs.replace(doubled.utilization, peak=None)
    )
    assert "MFU" not in {fact.label for fact in figure_facts(compare(some, other))}


@pytest.mark.parametrize(
    ("passes", "told"),
    [((1, 1), ""), ((4, 4), "1 in the base, 4 in the head"), ((3, 4), "1 in the base, 3 to 4 in")],
)
def test_other_numbers_of_micro_batches_are_told(
    training_analysis: Analysis, passes: tuple[int, int], told: str
) -> None:
    base, head = (
        msgspec.structs.replace(
            training_analysis,
            steps=msgspec.structs.replace(
                training_analysis.steps,
                content=StepContent(
                    backward_passes=counts, optimizer_steps=(1, 1), accumulates=False
                ),
            ),
        )
        for counts in ((1, 1), passes)
    )
    notes = [note for note in compare(base, head).notes if "backward passes" in note]
    assert [told in note for note in notes] == [True] * bool(told)


def test_timed_steps_of_a_busy_machine_are_in_doubt() -> None:
    block = recorded("captures/h100_llama_block")
    slow = slower_by(block, "launch", 4_000_000)
    busy = msgspec.structs.replace(
        slow,
        steps=msgspec.structs.replace(slow.steps, clock="host clock", waiting_fraction=0.48),
    )

    found = compare(busy, block)

    assert headline(found).startswith("Faster, with timed steps in doubt: step time")
    (said,) = (text for text in warnings(found) if "busy" in text)
    assert said.startswith("In the base the machine was busy: for 48% of the timed steps")
    assert "doubt" not in headline(compare(slow, block))
