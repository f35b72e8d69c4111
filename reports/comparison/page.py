"""A comparison as one HTML file that needs neither network nor, for its tables, script."""

from dataclasses import dataclass

from gpuprof.reports import formatting
from gpuprof.reports.comparison import sentences
from gpuprof.reports.html.templating import make_environment, scripts, source
from gpuprof.roofline.comparison.result import Comparison

MOST_ROWS = 500


@dataclass(frozen=True)
class Bar:
    """One bar of the waterfall, in percent of its width."""

    label: str
    text: str
    note: str
    left: float
    width: float
    # "slower", "faster" or "total"
    kind: str


def render_html(comparison: Comparison) -> str:
    """The comparison as one HTML file. The same comparison gives the same text."""
    environment = make_environment()
    changes = comparison.kernels
    return environment.get_template("comparison.html").render(
        comparison=comparison,
        sentences=sentences,
        title=formatting.printable(f"{comparison.base.title} → {comparison.head.title}"),
        bars=waterfall(comparison),
        rows=sentences.change_rows(changes[:MOST_ROWS]),
        rest=changes[MOST_ROWS:],
        style=source(environment, "report.css"),
        own_style=source(environment, "comparison.css"),
        script=scripts(environment),
    )


def waterfall(comparison: Comparison) -> tuple[Bar, ...]:
    """From the base's step over each part to the head's: every bar begins where one ended."""
    step = comparison.step
    if step is None:
        return ()
    parts = sentences.parts(step)
    reached = [float(step.lengths.base_ns)]
    for part in parts:
        reached.append(reached[-1] + part.change_ns)
    # Two long steps that differ by little are told apart by leaving out what both have.
    low, high = min(0.0, *reached), max(reached)
    if min(reached) > 0.7 * high:
        low = min(reached) - 0.5 * (high - min(reached))
    span = (high - low) or 1.0

    def bar(label: str, text: str, note: str, start: float, end: float, kind: str) -> Bar:
        left, right = sorted((start, end))
        return Bar(label, text, note, 100 * (left - low) / span, 100 * (right - left) / span, kind)

    bars = [
        bar(
            "base",
            formatting.duration(step.lengths.base_ns, 4),
            "",
            low,
            step.lengths.base_ns,
            "total",
        )
    ]
    for part, start in zip(parts, reached, strict=False):
        end = start + part.change_ns
        kind = "slower" if part.change_ns > 0 else "faster"
        bars.append(bar(part.label, sentences.delta(part.change_ns), part.note, start, end, kind))
    bars.append(
        bar(
            "head",
            formatting.duration(step.lengths.head_ns, 4),
            "",
            low,
            step.lengths.head_ns,
            "total",
        )
    )
    return tuple(bars)
