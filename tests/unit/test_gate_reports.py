"""Every form of a gate's result: what it says, what it escapes, and that it stays in bounds."""

import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from json_documents import read_answer
from junitparser import Error, Failure, JUnitXml, Skipped
from rich.console import Console

from gpuprof.collectors.errors import CommandError
from gpuprof.profiler.captures import load_analysis
from gpuprof.profiler.gate.outputs import FORMS, Outputs
from gpuprof.reports.comparison.amounts import delta
from gpuprof.reports.formatting import percent
from gpuprof.reports.gate import sentences
from gpuprof.reports.gate.annotations import render_annotations
from gpuprof.reports.gate.first_look import first_look
from gpuprof.reports.gate.junit import render_junit
from gpuprof.reports.gate.markdown import COMMENT_MARKER, render_comment, render_markdown
from gpuprof.reports.gate.page import render_html
from gpuprof.reports.gate.plot import MOST_PLOTTED, make_plot
from gpuprof.reports.gate.reasons import reasons
from gpuprof.reports.gate.terminal import render_gate
from gpuprof.reports.markdown import escaped
from gpuprof.roofline.comparison.compare import compare
from gpuprof.roofline.comparison.result import Lengths
from gpuprof.roofline.gate.budget import Budget
from gpuprof.roofline.gate.call_text import call_text, tensors_of
from gpuprof.roofline.gate.counters import Counter, CounterBudget, judge_counter
from gpuprof.roofline.gate.judge import judge
from gpuprof.roofline.gate.judgement import Judgement
from gpuprof.roofline.gate.result import Explanation, GateResult, Place, SideInfo
from gpuprof.roofline.gate.rule import RuleSettings
from gpuprof.roofline.gate.series import Metric, ProcessRun, Series
from gpuprof.roofline.gate.suite import MeasuredProcess

ROOT = Path(__file__).resolve().parents[2]
CAPTURE = ROOT / "tests" / "data" / "captures" / "h100_llama_block"
HOSTILE = "a]|<script>alert(1)</script>`*\n::error::%0A\x1b[31m"


def series(name: str, factor: float, sd: float = 0.002, **fields: Any) -> Series:
    """Five pairs of a benchmark whose head takes `factor` times as long."""
    generator = np.random.default_rng(len(name))
    runs = [
        ProcessRun(
            side="A" if side == 0 else "B",
            pair=pair,
            samples=(float(1e6 * factor**side * np.exp(generator.normal(0, sd))),) * 20,
        )
        for pair in range(5)
        for side in (0, 1)
    ]
    return Series(benchmark=name, runs=tuple(runs), **fields)


def result_of(*suite: Series, **fields: Any) -> GateResult:
    return GateResult(
        tool_version="1",
        created_ns=0,
        base=SideInfo(label="main (3f2a91c)"),
        head=SideInfo(label="the working tree"),
        settings=RuleSettings(),
        judgements=judge(suite, give_up=True),
        seconds=61.0,
        **fields,
    )


def failed(name: str) -> Series:
    return Series(benchmark=name, runs=(ProcessRun(side="B", pair=0, failure="it exited with 1"),))


@pytest.fixture(scope="module")
def every_verdict() -> GateResult:
    """A suite with all that can happen, and the reason of its regression."""
    base = load_analysis(CAPTURE)
    longer = tuple(
        msgspec.structs.replace(kernel, device_ns=kernel.device_ns * (3 if index == 0 else 1))
        for index, kernel in enumerate(base.kernels)
    )
    head = msgspec.structs.replace(base, kernels=longer)
    return result_of(
        series("train/slow", 1.2),
        series("train/same", 1.0),
        series("train/fast", 0.8),
        series("train/noisy", 1.05, sd=0.05, budget=Budget(regress=0.03)),
        series("train/elsewhere", 1.0, incomparable=("driver: 550 against 570",)),
        failed("broken"),
        series("train/said", 1.2, budget=Budget(level="warn")),
        places={"train": Place(file="train.py"), "broken": Place(file="b,1:2.py", line=3)},
        explanations=(Explanation(benchmark="train/slow", comparison=compare(base, head)),),
    )


def terminal(result: GateResult, width: int) -> str:
    stream = io.StringIO()
    render_gate(result, Console(file=stream, width=width), Path("gpuprof-gate"))
    return stream.getvalue()


@pytest.mark.parametrize("width", [80, 110, 140])
def test_the_table_names_each_benchmark_on_one_line(every_verdict: GateResult, width: int) -> None:
    text = terminal(every_verdict, width)

    assert max(map(len, text.splitlines())) <= width
    for verdict, name in (("REGRESSED", "train/slow"), ("INCOMPARABLE", "train/elsewhere")):
        (line,) = [line for line in text.splitlines() if re.match(rf"{name} +{verdict}\b", line)]
        assert verdict in line
    # The interval is short where there is little room.
    assert bool(re.search(r"\+20\.\d% ±\d", text)) == (width < 110)
    assert bool(re.search(r"\+20\.\d% \[\+", text)) == (width >= 110)


def test_the_regression_stands_before_what_passes(every_verdict: GateResult) -> None:
    text = terminal(every_verdict, 100)

    assert text.startswith("REGRESSED: 7 benchmarks, 1 regressed, 1 error")
    assert text.index("train/slow") < text.index("train/same")
    assert "What changed in train/slow" in text


def test_every_form_says_first_what_to_look_at(every_verdict: GateResult) -> None:
    look = first_look(every_verdict)
    assert re.fullmatch(
        r"Look first at train/slow time: \+20\.\d%, over its limit of 2\.0%; train\.py:1\.", look
    )
    text = render_markdown(every_verdict)
    assert f"**{escaped(look)}**" in text
    assert text.index("Look first") < text.index("| Benchmark")
    assert terminal(every_verdict, 400).splitlines()[2] == look
    page = _Page()
    page.feed(render_html(every_verdict))
    assert page.text.index(look) < page.text.index("Paired differences")


def test_what_explains_a_change_is_said_first_and_nothing_else() -> None:
    slower = result_of(series("train", 1.2))
    why, other_way = profiled(lengthened(3), 60_000), profiled(lengthened(0.5), -60_000)
    shown = msgspec.structs.replace(slower, explanations=(why,))
    assert first_look(shown).endswith(f"; the largest part is {reasons(why, shown).lines[0]}.")
    assert reasons(other_way, slower).lines
    shown = msgspec.structs.replace(slower, explanations=(other_way,))
    assert first_look(shown) == "Look first at train time: +20.0%, over its limit of 2.0%."


def test_where_nothing_is_worse_it_says_what_could_be_found() -> None:
    fine = result_of(series("train/same", 1.0), series("train/fast", 0.8))
    found = max(j.smallest_detectable_with_rerun or 0 for j in fine.judgements)
    assert first_look(fine) == (
        f"Nothing is worse than its limit allows; changes from {percent(found)} on can be found."
    )
    assert first_look(result_of(failed("broken"))).startswith("Look first at broken time: ")
    assert first_look(result_of()) == ""


def test_a_suite_without_data_is_no_regression_in_words() -> None:
    nothing = Series(benchmark="gemm", runs=(ProcessRun(side="A", pair=0, samples=(1.0,)),))

    result = result_of(nothing)

    assert result.exit_code == 1
    assert sentences.headline(result).startswith("ERROR: ")


def test_figures_share_their_unit() -> None:
    one, other = (
        Judgement(
            benchmark="b",
            metric=Metric(name="time", unit="ns"),
            verdict="PASS",
            reason="no-change",
            message="",
            base=base,
            head=head,
        )
        for base, head in ((1.5e6, 2e6), (9.5e5, 2e6))
    )
    assert sentences.row(one).figures == "1.500 → 2.000 ms"
    assert sentences.row(other).figures == "950.0 µs → 2.000 ms"


def test_markdown_has_what_asks_for_attention_first_and_what_passes_folded(
    every_verdict: GateResult,
) -> None:
    text = render_markdown(every_verdict)

    assert text.startswith("## gpuprof gate: REGRESSED")
    assert "| train/slow | time | **REGRESSED** |" in text
    folded = text.index("<details>")
    assert text.index("train/slow") < folded < text.index("train/same")
    assert "### What changed in train/slow" in text
    assert "Cut short" not in text


@pytest.mark.parametrize("name", ["benchmark", "x" * 3000, HOSTILE * 20])
def test_a_comment_is_below_60_kb_however_large_the_suite(name: str) -> None:
    (judgement,) = judge([series("b", 1.2)], give_up=True)
    suite = tuple(
        msgspec.structs.replace(judgement, benchmark=f"{index} {name}") for index in range(3000)
    )
    result = msgspec.structs.replace(result_of(series("b", 1.2)), judgements=suite)

    text = render_comment(result)

    assert text.startswith(f"{COMMENT_MARKER}\n")
    assert 30_000 < len(text.encode()) <= 60_000
    listed = sum(line.startswith(("| ", "- ")) for line in text.splitlines()) - 2
    (said,) = re.findall(r"\*\*Cut short:\*\* (\d+) more lines", text)
    # Each has a row and a sentence.
    assert listed + int(said) == 2 * len(suite)


def test_a_name_cannot_break_out_of_its_place(every_verdict: GateResult) -> None:
    result = msgspec.structs.replace(
        every_verdict,
        judgements=tuple(
            msgspec.structs.replace(j, benchmark=HOSTILE, message=HOSTILE)
            for j in every_verdict.judgements
        ),
    )

    markdown, page = render_markdown(result), render_html(result)

    assert "<script>alert" not in markdown
    assert "<script>alert" not in page
    assert "\x1b" not in markdown + page + terminal(result, 80) + render_junit(result)
    annotations = render_annotations(result)
    assert all(re.match(r"::(error|warning) ", line) for line in annotations.splitlines())


def test_annotations_point_at_the_target_and_are_escaped(every_verdict: GateResult) -> None:
    lines = render_annotations(every_verdict, folder="models").splitlines()

    assert lines[0].startswith(
        "::error file=models/train.py,line=1,title=gpuprof gate%3A train/slow time REGRESSED::"
    )
    assert "%25, over its limit of 2.0%25" in lines[0]
    assert any("file=models/b%2C1%3A2.py,line=3," in line for line in lines)
    kinds = [line.split()[0] for line in lines]
    # The regression, the crash and the incomparable one; the undecided one and the warning.
    assert (kinds.count("::error"), kinds.count("::warning")) == (3, 2)


def test_a_regression_is_annotated_where_its_largest_cause_is_launched(
    every_verdict: GateResult,
) -> None:
    (why,) = every_verdict.explanations
    op = why.culprits[0].op
    kernel = next(
        change.head
        for change in why.comparison.kernels
        if change.head is not None and change.name == why.culprits[0].name
    )
    tensors = tensors_of(kernel.shapes)
    assert tensors
    call = call_text(op, tensors, backward=kernel.phase == "backward")
    # The line of such calls counts more than that of most calls of the operator.
    sources = {op: Place(file="model.py", line=1), call: Place(file="optimizer.py", line=9)}
    result = msgspec.structs.replace(
        every_verdict, explanations=(msgspec.structs.replace(why, sources=sources),)
    )

    lines = render_annotations(result).splitlines()

    assert lines[0].startswith("::error file=optimizer.py,line=9,title=gpuprof gate%3A train/slow")
    assert not any("optimizer.py" in line for line in lines[1:])
    assert "optimizer.py:9" in terminal(result, 100)
    assert "optimizer.py:9" in render_html(result)


def test_an_advisory_regression_is_a_warning_and_a_crash_is_an_error(
    every_verdict: GateResult,
) -> None:
    result = msgspec.structs.replace(every_verdict, advisory=True)

    lines = render_annotations(result).splitlines()
    suite = JUnitXml.fromstring(render_junit(result).encode())

    errors = [re.findall(r"gate%3A (\S+) time", line)[0] for line in lines if "::error" in line]
    assert errors == ["broken", "train/elsewhere"]
    assert (suite.failures, suite.errors, suite.skipped) == (0, 1, 4)


@pytest.mark.parametrize("on_inconclusive", ["warn", "fail"])
@pytest.mark.parametrize("advisory", [False, True])
def test_there_are_errors_exactly_where_the_exit_code_is_not_0(
    every_verdict: GateResult, advisory: bool, on_inconclusive: str
) -> None:
    for judgement in every_verdict.judgements:
        result = msgspec.structs.replace(
            every_verdict,
            judgements=(judgement,),
            advisory=advisory,
            on_inconclusive=on_inconclusive,
        )
        assert ("::error" in render_annotations(result)) == (result.exit_code != 0)


def test_an_advisory_gate_fails_for_what_cannot_be_compared_and_not_for_what_is_slower(
    every_verdict: GateResult,
) -> None:
    found = {
        verdict: msgspec.structs.replace(
            every_verdict,
            advisory=True,
            judgements=tuple(j for j in every_verdict.judgements if j.verdict == verdict),
        )
        for verdict in ("REGRESSED", "INCOMPARABLE")
    }

    assert {verdict: result.exit_code for verdict, result in found.items()} == {
        "REGRESSED": 0,
        "INCOMPARABLE": 3,
    }
    assert sentences.headline(found["REGRESSED"]).startswith("ADVISORY")
    assert sentences.headline(found["INCOMPARABLE"]).startswith("INCOMPARABLE")


def test_annotations_stop_where_github_does_and_say_so() -> None:
    result = result_of(*(series(f"b{index}", 1.3) for index in range(25)))

    lines = render_annotations(result).splitlines()

    assert len(lines) == 10
    assert lines[-1].endswith("%0Aand 15 more of this kind")


def test_junit_has_a_case_for_each_benchmark_and_metric(every_verdict: GateResult) -> None:
    xml = JUnitXml.fromstring(render_junit(every_verdict).encode())

    (suite,) = list(xml)
    cases = {case.classname: case for case in suite}
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (7, 1, 1, 3)
    assert {name: [type(r) for r in case.result] for name, case in cases.items()} == {
        "train/slow": [Failure],
        "train/same": [],
        "train/fast": [],
        "train/noisy": [Skipped],
        "train/elsewhere": [Skipped],
        "broken": [Error],
        "train/said": [Skipped],
    }
    (skipped,) = cases["train/elsewhere"].result
    assert skipped.message == "INCOMPARABLE: driver: 550 against 570"
    assert {case.name for case in suite} == {"time"}


def test_every_form_has_as_many_regressions_as_the_first_line_counts() -> None:
    warned, asked = Budget(level="warn"), Metric(name="mfu", unit="", better="higher")
    counted = CounterBudget(level="error")
    result = result_of(series("a", 1.2), series("b", 1.3, budget=warned), series("c", 1.0))
    counts: dict[str, Any] = {"benchmark": "a", "base": (2.0, 2.0), "head": (3.0, 3.0)}
    exact = (
        judge_counter(Counter(name="kernels", **counts), 0.02),
        judge_counter(Counter(name="launches", budget=counted, **counts), 0.02),
    )
    (rate,) = judge([series("a", 0.7, metric=asked)], give_up=True)
    result = msgspec.structs.replace(result, judgements=(*result.judgements, *exact, rate))
    assert [j.verdict for j in result.judgements].count("REGRESSED") == 5

    table = terminal(result, 120)
    page = re.findall(r'<td class="outcome REGRESSED">(\w+)</td>', render_html(result))
    suite = JUnitXml.fromstring(render_junit(result).encode())

    assert sentences.headline(result) == "REGRESSED: 3 benchmarks, 3 regressed, 1 pass"
    assert len(re.findall(r" REGRESSED ", table)) == 3
    assert render_markdown(result).count("| **REGRESSED** |") == 3
    assert render_markdown(result).count("REGRESSED |") == 0
    assert render_markdown(result).count("| WORSE |") == 2
    assert (page.count("REGRESSED"), page.count("WORSE")) == (3, 2)
    assert suite.failures == 3
    assert render_junit(result).count('message="REGRESSED: ') == 3
    assert render_annotations(result).count(" REGRESSED::") == 3
    assert result.exit_code == 1


def lengthened(factor: float) -> Explanation:
    """One kernel of a step takes `factor` times as long in the pair that is compared."""
    base = load_analysis(CAPTURE)
    first, *others = base.kernels
    slower = msgspec.structs.replace(first, device_ns=round(first.device_ns * factor))
    head = msgspec.structs.replace(base, kernels=(slower, *others))
    return Explanation(benchmark="train", comparison=compare(base, head))


def profiled(explanation: Explanation, change_ns: int) -> Explanation:
    """`explanation` of steps under the profiler, which changed by so much."""
    comparison = explanation.comparison
    assert comparison.step is not None
    base_ns = comparison.step.lengths.base_ns
    lengths = Lengths("profiled step time", base_ns, base_ns + change_ns)
    step = msgspec.structs.replace(comparison.step, lengths=lengths)
    changed = msgspec.structs.replace(comparison, step=step)
    return msgspec.structs.replace(explanation, comparison=changed)


def test_shares_are_told_only_of_a_change_that_the_verdict_shows() -> None:
    why = profiled(lengthened(3), 60_000)
    slower, same = result_of(series("train", 1.2)), result_of(series("train", 1.0))
    (judgement,) = slower.judgements
    assert judgement.base is not None
    assert judgement.head is not None

    told, untold = reasons(why, slower), reasons(why, same)

    assert "of the change" in told.lines[0]
    # 0.2 ms of the steps that the verdict rests on, 0.06 ms of the one that was profiled.
    assert "which changed by +60.0 µs" in told.note
    assert f"changed by {delta(judgement.head - judgement.base)}." in told.note
    assert untold.lines
    assert not any("% of the change" in line for line in untold.lines)
    assert untold.note.startswith("No change of time is shown; these are the differences")
    assert reasons(why, result_of(failed("train"))).note.startswith("Whether the time of a step ")
    for result in (slower, same):
        shown = msgspec.structs.replace(result, explanations=(why,))
        note = reasons(why, result).note
        assert note in " ".join(terminal(shown, 80).split())
        assert note in render_html(shown).replace("&#39;", "'")


def test_a_pair_that_went_the_other_way_explains_nothing_and_says_so() -> None:
    told = reasons(profiled(lengthened(0.5), -60_000), result_of(series("train", 1.2)))

    assert "changed by -60.0 µs" in told.note
    assert "does not explain it" in told.note
    assert not any("of the change" in line for line in told.lines)


def test_what_a_failed_process_said_last_is_in_every_form() -> None:
    failure = "it exited with 1: ValueError: boom (out/train/pair-000-B/output.txt)"
    lines = ('  File "train.py", line 3', "<b>`|```", "\x1b[31mValueError: boom")
    process = MeasuredProcess(
        target="train",
        side="B",
        pair=0,
        first=False,
        failure=failure,
        last_lines=lines,
        log="out/train/pair-000-B/output.txt",
    )
    run = ProcessRun(side="B", pair=0, failure=failure)
    result = result_of(Series(benchmark="train", runs=(run,)), processes=(process,))

    for form in (render_junit(result), render_html(result), render_markdown(result)):
        assert "line 3" in form
        assert "boom" in form
        assert "\x1b" not in form
    assert "&lt;b&gt;`|" in render_html(result)
    assert "    <b>`|```" in render_markdown(result).splitlines()
    text = terminal(result, 100)
    assert "What train of the working tree said last (out/train/pair-000-B/output.txt)" in text
    assert '\n    File "train.py", line 3\n' in text


def test_json_is_the_result(every_verdict: GateResult) -> None:
    text = FORMS["json"](every_verdict)
    assert msgspec.json.decode(text, type=GateResult) == every_verdict


class _Page(HTMLParser):
    """Collects references and checks that tags are balanced."""

    def __init__(self) -> None:
        super().__init__()
        self.references: list[str] = []
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.references += [value for key, value in attrs if key in ("src", "href") and value]
        if tag not in ("meta", "link", "input", "col", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_one_offline_file_with_verdicts_pairs_and_reasons(
    every_verdict: GateResult,
) -> None:
    page = _Page()
    page.feed(render_html(every_verdict))

    assert page.open == []
    assert [r for r in page.references if not r.startswith(("#", "data:"))] == []
    texts = ("train/slow", "Paired differences", "In one process of each side", "550 against 570")
    for text in texts:
        assert text in page.text
    assert render_html(every_verdict) == render_html(every_verdict)


def test_the_plot_has_each_pair_with_its_limit(every_verdict: GateResult) -> None:
    plot = make_plot(every_verdict)

    assert plot is not None
    first = plot.rows[0]
    assert (first.label, first.verdict, len(first.pairs)) == ("train/slow", "REGRESSED", 5)
    assert first.mean == pytest.approx(20, abs=1)
    assert first.limit == pytest.approx(2)
    assert first.interval is not None
    assert first.interval[0] < first.mean < first.interval[1]
    assert "broken" not in [row.label for row in plot.rows]


def test_a_large_suite_has_a_plot_of_its_first_rows() -> None:
    plot = make_plot(result_of(*(series(f"b{index}", 1.0) for index in range(MOST_PLOTTED + 7))))

    assert plot is not None
    assert len(plot.rows) == MOST_PLOTTED
    assert plot.note == "Not in this plot: 7 more; the table below has them."


def test_a_page_of_nothing_but_failures_has_no_plot() -> None:
    assert "Paired differences" not in render_html(result_of(failed("broken")))


def test_outputs_go_where_asked_and_to_githubs_summary(
    every_verdict: GateResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = Outputs(tmp_path / "gate", {form: tmp_path / f"o.{form}" for form in FORMS})
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")

    outputs.refuse_existing(force=False)
    outputs.prepare()
    outputs.write(every_verdict, {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)})

    assert summary.read_text() == "before\n" + render_markdown(every_verdict)
    assert "\n::error file=train.py" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "gate").iterdir()} == {
        *("gate.json", "report.html", ".gitignore")
    }
    assert (tmp_path / "o.junit").read_text() == render_junit(every_verdict)
    with pytest.raises(CommandError, match="exists; choose another -o or pass --force"):
        outputs.refuse_existing(force=False)
    outputs.refuse_existing(force=True)


def test_without_github_there_are_no_annotations(
    every_verdict: GateResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = Outputs(tmp_path / "gate", {})
    outputs.prepare()
    outputs.write(every_verdict, {})
    assert "::error" not in capsys.readouterr().out


def test_as_json_stdout_has_the_result_alone(
    every_verdict: GateResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = Outputs(tmp_path / "gate", {}, prints_json=True)
    outputs.prepare()
    outputs.write(every_verdict, {"GITHUB_ACTIONS": "true"})
    printed = capsys.readouterr()
    assert read_answer(printed.out) == read_answer((tmp_path / "gate" / "gate.json").read_bytes())
    assert "::error file=train.py" in printed.err


def test_what_is_in_the_way_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("")
    file = tmp_path / "old.xml"
    file.write_text("")
    outputs = Outputs(tmp_path / "new", {"junit": file})

    with pytest.raises(CommandError, match="is no gate's result"):
        Outputs(other, {}).refuse_existing(force=True)
    with pytest.raises(CommandError, match=r"old\.xml exists; choose another --junit"):
        outputs.refuse_existing(force=False)
    with pytest.raises(CommandError, match="is not a folder"):
        replace(outputs, files={"html": tmp_path / "a" / "b.html"}).refuse_existing(force=True)
    # The folder itself is made by the gate.
    replace(outputs, files={"html": tmp_path / "new" / "b.html"}).refuse_existing(force=False)


def test_an_interrupted_gate_leaves_nothing_old_and_can_be_run_again(tmp_path: Path) -> None:
    folder = tmp_path / "gate"
    outputs = Outputs(folder, {})
    outputs.prepare()
    for name in ("gate.json", "report.html", "mine.xml"):
        (folder / name).touch()
    (folder / "train" / "pair-000-A").mkdir(parents=True)

    outputs.prepare()

    assert {path.name for path in folder.iterdir()} == {".gitignore", "mine.xml"}
    outputs.refuse_existing(force=True)
