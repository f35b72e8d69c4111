"""How figures were computed: each is computed again from what the page shows, by other code."""

import html
import re
import statistics
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from golden_captures import page_of

from gpuprof.reports.computation import SymbolUnit, exact_text
from gpuprof.reports.computed.formulas import computation, formulas
from gpuprof.reports.computed.sections import section_rules
from gpuprof.reports.html.page import render_html
from gpuprof.reports.sections import SECTIONS
from gpuprof.roofline.activity_figures import Activity, Reconciliation
from gpuprof.roofline.analysis import Analysis

DOCS = Path(__file__).parents[2] / "docs"
CAPTURES = (
    "captures/h200_llama_block",
    "captures/h100_llama2_7b_decode",
    "captures/h100_cuda_graph",
    "diagnosis/activation_checkpointing",
    "diagnosis/cuda_graph",
    "diagnosis/misaligned_shapes",
    "diagnosis/pageable_copies",
    "diagnosis/tiny_operators",
    "kineto/cpu-only.json",
    "ranks/gloo4_ddp_work",
)
_PREFIXES = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "m": 1e-3, "µ": 1e-6}
_TIMES = "\N{MULTIPLICATION SIGN}"
_UNITS = ("FLOP/s", "B/s", "FLOP", "B", "ns", "s")
_FUNCTIONS = {"median": statistics.median, "mean": statistics.fmean, "sum": sum, "min": min}


@dataclass(frozen=True)
class Shown:
    """One disclosure of a page."""

    what: str
    expression: str
    value: str
    inputs: dict[str, list[float]]


def shown_in(page: str) -> list[Shown]:
    """All formulas of `page`, with the inputs and the figure that stand beside them."""
    found = []
    for text in re.findall(r'<details class="how"(?: open)?>(.*?)</details>', page, re.DOTALL):
        what = re.search(r'<span class="unseen"> (.*?) is computed', text)
        formula = re.search(r"<p><code>(.*?)</code> = (.*?)</p>", text)
        if what is None or formula is None:
            continue
        inputs = {
            symbol: [float(value) for value in re.findall(r'<data value="([^"]+)"', values)]
            for symbol, values in re.findall(r"<dt><code>(.*?)</code></dt><dd>(.*?)</dd>", text)
        }
        expression, value = (html.unescape(each) for each in formula.groups())
        found.append(Shown(html.unescape(what[1]), expression.replace(_TIMES, "*"), value, inputs))
    return found


def computed_again(shown: Shown) -> float:
    named = {
        symbol: values if re.search(rf"\w+\({symbol}\)", shown.expression) else values[0]
        for symbol, values in shown.inputs.items()
    }
    result: float = eval(shown.expression, {"__builtins__": {}}, {**_FUNCTIONS, **named})
    return result


def as_number(text: str) -> tuple[float, float]:
    """A figure as it is printed, and half of its last digit."""
    match = re.search(r"(-?[\d.]+) ?([^\d]*)$", text.replace("+", "").replace("!", ""))
    assert match, text
    digits, unit = match[1], match[2].strip()
    factor = 0.01 if unit == "%" else 1.0
    for name in _UNITS:
        if unit.endswith(name):
            factor = 1e-9 if name == "ns" else _PREFIXES[unit.removesuffix(name)]
            break
    decimals = len(digits.partition(".")[2])
    return float(digits) * factor, 0.5 * 10**-decimals * factor


def assert_holds(shown: Shown) -> None:
    result = computed_again(shown)
    if "<" in shown.value:
        assert 0 < result < 0.0005
        return
    number, half = as_number(shown.value)
    assert result == pytest.approx(number, abs=half * 1.001), shown


@pytest.mark.parametrize("name", CAPTURES)
def test_every_figure_can_be_computed_again_from_the_page(name: str) -> None:
    shown = shown_in(page_of(name))
    assert len(shown) >= 3
    for each in shown:
        assert_holds(each)


def test_a_figure_that_is_not_so_fails_that_test() -> None:
    shown = next(each for each in shown_in(page_of(CAPTURES[0])) if each.what == "MFU")
    number, _ = as_number(shown.value)
    off = Shown(shown.what, shown.expression, f"{number * 100 + 0.2:.1f}%", shown.inputs)
    with pytest.raises(AssertionError):
        assert_holds(off)


def test_all_headline_figures_are_among_them() -> None:
    """On one capture or another, each kind of figure that the table knows."""
    shown = {each.what for name in CAPTURES for each in shown_in(page_of(name))}
    assert shown >= {
        *("Step time", "MFU", "MFU, causal", "HFU", "MBU", "Profiler stretch", "Modelled"),
        *("Device work at its roof", "Waiting for the host", "Outside of operators"),
        *("the share of the largest loss", "Bound by compute", "exposed communication"),
        *("exposed copies", "Gain of 1, launches", "Gain of 1, misaligned"),
        *("Bandwidth", "Bus bandwidth", "Of its link", "Gain of 1, straggler's work"),
        *("FLOP/s", "Bytes/s", "FLOP/byte", "Roof", "Roof time", "Share"),
    }


def test_what_the_device_counted_is_computed_too(training_analysis: Analysis) -> None:
    reconciled = Reconciliation(
        ofu=0.6 * 1500 / 1830,
        mfu=0.45,
        precision="bf16",
        clock_mhz=1500,
        peak_clock_mhz=1830,
        uncertainty=0.02,
    )
    activity = Activity(windows=3, window_ns=10**8, tensor_active=0.6, reconciled=reconciled)
    page = render_html(msgspec.structs.replace(training_analysis, activity=activity))
    (shown,) = (each for each in shown_in(page) if each.what == "OFU")
    assert_holds(shown)
    assert shown.inputs == {"a": [0.6], "f": [1500], "p": [1830]}


def test_peaks_of_devices_that_differ_are_not_said_to_be_alike(training_analysis: Analysis) -> None:
    utilization = training_analysis.utilization
    assert utilization is not None
    assert utilization.mfu is not None
    # A second device with half of the first one's peak.
    two = msgspec.structs.replace(utilization, devices=2, mfu=utilization.mfu / 1.5)
    page = render_html(msgspec.structs.replace(training_analysis, utilization=two))
    assert not [each for each in shown_in(page) if each.what == "MFU"]


def test_many_steps_are_counted_and_not_listed(training_analysis: Analysis) -> None:
    steps = msgspec.structs.replace(training_analysis.steps, timed=101, samples_ns=(10**6,) * 101)
    page = render_html(msgspec.structs.replace(training_analysis, steps=steps))
    assert "each timed step (101 values, which the JSON has)" in page


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.027221312, "s", "27.221312 ms"),
        (1.5, "s", "1.5 s"),
        (736e-9, "s", "736 ns"),
        (0.0, "s", "0 ns"),
        (989.4e12, "FLOP/s", "989.4 TFLOP/s"),
        (14017431212032, "FLOP", "14\xa0017\xa0431\xa0212\xa0032 FLOP"),
        (4.8e12, "B/s", "4.8 TB/s"),
        (8, "", "8"),
    ],
)
def test_inputs_have_all_their_digits(value: float, unit: SymbolUnit, text: str) -> None:
    assert exact_text(value, unit) == text


def test_every_formula_names_a_section_of_the_docs_and_its_symbols() -> None:
    headings = re.findall(r"(?m)^##+ (.*)$", (DOCS / "numbers.md").read_text())
    decisions = {f"docs/decisions/{path.name}" for path in (DOCS / "decisions").iterdir()}
    for row in formulas().values():
        assert row.docs in headings
        assert row.source
        assert set(re.findall(r"docs/decisions/\S+\.md", row.source)) <= decisions
        names = set(re.findall(r"\b[A-Za-z]\b", row.expression))
        assert names == {symbol.name for symbol in row.symbols}


def test_every_section_says_what_its_figures_rest_on(training_analysis: Analysis) -> None:
    rules = section_rules()
    titled = {section.key for section in SECTIONS if section.title(training_analysis)}
    # It says itself how to read the others.
    assert set(rules) == titled - {"reading"}
    page = render_html(training_analysis)
    shown = [key for key in rules if f'<section id="{key}">' in page]
    assert len(shown) > 5
    for key in shown:
        assert html.escape(rules[key].rule).replace("&#x27;", "&#39;") in page
    for row in rules.values():
        file, _, heading = row.docs.partition(", ")
        assert re.search(rf"(?m)^#+ {re.escape(heading)}", (DOCS / file).read_text()), row.docs
        for path in re.findall(r"\b(?:roofline|collectors|reports)/[\w/]+\.toml", row.source):
            assert (DOCS.parent / path).is_file()


def test_a_symbol_without_a_value_is_an_error() -> None:
    with pytest.raises(KeyError):
        computation("MFU", F=1)


def test_a_page_without_a_step_has_no_empty_disclosure(bare_analysis: Analysis) -> None:
    assert shown_in(render_html(bare_analysis)) == []
