"""The modules of the program: the device work of each, and the lines that call it."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final

from gpuprof.reports import formatting
from gpuprof.reports.blocks import (
    Block,
    Column,
    Details,
    Fact,
    Facts,
    Paragraph,
    RowSubject,
    Table,
    folded_table,
)
from gpuprof.reports.figures import line_text, per_step, roof_percent, source_text
from gpuprof.reports.fused_operators import fused_names, lines_text
from gpuprof.reports.sections.roof import roof_sentence
from gpuprof.reports.sections.section import Section, titled
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.module_figures import ModuleOperator, ModuleTree, ModuleWork, SourceLine

OUTSIDE: Final = "(no module)"
# A page holds about so many rows before it is hard to find one.
_MOST_MODULES: Final = 200
_MOST_OPERATORS: Final = 200
# Of device time: the summary names no module with less, and no line with less.
_LARGE: Final = 0.1
_NEGLIGIBLE: Final = 0.02
# Of the step: the summary names no line that gains less.
_SMALL_GAIN: Final = 0.01
# Of a row's device time: with less of it counted its figures are of a part.
_ALL: Final = 0.999
_NUMBERS: Final = ("Modules", "Time", "Share", "Own", "Backward", "FLOPs", "Bytes", "Of its roof")
_MODULE_COLUMNS: Final = (
    Column("Module"),
    *(Column(head, "number") for head in _NUMBERS),
    Column("Class"),
)
_OPERATOR_COLUMNS: Final = (
    Column("Line", "code"),
    Column("Function"),
    Column("Operator"),
    Column("Module"),
    *(Column(head, "number") for head in ("Time", "Share", "Backward")),
    Column("Class"),
)


def _summary(analysis: Analysis) -> Sequence[Block]:
    """The module with most time of its own, and the line of the largest loss.

    Neither where it tells nothing: a program of one module, many modules with little each, a line
    that the advice names, or one whose gain is within the noise, as all are where there is none.
    """
    tree = analysis.modules
    if tree is None:
        return ()
    facts = []
    with_own = [row for row in tree.rows if row.path]
    if with_own:
        largest = max(with_own, key=lambda row: row.own_ns)
        all_ns = largest.device_ns / largest.device_fraction if largest.device_fraction else 0
        own = largest.own_ns / all_ns if all_ns else 0.0
        number = f", {largest.instances} modules" if largest.instances > 1 else ""
        if own >= _LARGE and len(with_own) > 1:
            note = f"{formatting.percent(own)} of device time{number}"
            facts.append(Fact("Module", largest.path, note))
    nothing_to_gain = analysis.binds is not None and not analysis.advice
    loss = None if nothing_to_gain else _largest_loss(analysis)
    advised = {place.place for advice in analysis.advice for place in advice.places}
    if loss is not None and line_text(loss[0][0]) not in advised:
        (source, module, name), gain_ns = loss
        where = f" in {module}" if module else ""
        in_steps = analysis.split is None or analysis.split.basis != "whole trace"
        whole = "a step" if in_steps else "the trace"
        gain = f"{name}{where}: up to {formatting.duration(gain_ns)} of {whole} to gain"
        facts.append(Fact("Line", source_text(source), gain))
    return (Facts(tuple(facts)),) if facts else ()


def _largest_loss(analysis: Analysis) -> tuple[tuple[SourceLine, str, str], int] | None:
    """The line, module and operator that could gain most, and how much; None where little is."""
    gains: Counter[tuple[SourceLine, str, str]] = Counter()
    shares: defaultdict[tuple[SourceLine, str, str], float] = defaultdict(float)
    for point in analysis.ops:
        if point.source is not None:
            call = point.source, point.module, point.caller or point.name
            gains[call] += point.bottleneck.gain_ns or 0
            shares[call] += point.device_fraction
    least_ns = 0.0 if analysis.split is None else _SMALL_GAIN * analysis.split.step_ns
    likely = {
        call: ns for call, ns in gains.items() if ns > least_ns and shares[call] >= _NEGLIGIBLE
    }
    return max(likely.items(), key=lambda item: item[1], default=None)


def module_rows(analysis: Analysis) -> tuple[tuple[str, ModuleWork], ...]:
    """The modules that have a row, each with the row's id."""
    rows = () if analysis.modules is None else analysis.modules.rows[:_MOST_MODULES]
    return tuple((f"module-{index}", row) for index, row in enumerate(rows))


def _body(analysis: Analysis) -> Sequence[Block]:
    tree = analysis.modules
    if tree is None:
        return ()
    steps = analysis.steps.profiled
    known = (
        f"{formatting.percent(tree.with_module)} of device time was called by a module, "
        f"{formatting.percent(tree.with_line)} from a known line or function of the program. "
    )
    means = "Times and counts are means for one step. " if steps else ""
    repeated = "Repeated blocks are one row: layers.* is layers.0, layers.1 and so on. "
    operators = sorted(
        ((row, each) for row in tree.rows for each in row.operators),
        key=lambda pair: -pair[1].device_ns,
    )
    shown = operators[:_MOST_OPERATORS]
    return (
        Paragraph(known + repeated + means + roof_sentence(analysis)),
        *folded_table(
            _MODULE_COLUMNS,
            tuple(_row(row, steps) for _, row in module_rows(analysis)),
            "modules",
            tuple(RowSubject(row_id, "module", row.path) for row_id, row in module_rows(analysis)),
        ),
        *_left_out(tree),
        Details(
            f"By line of the program: {len(shown)} of {len(operators)} calls of operators",
            (Table(_OPERATOR_COLUMNS, tuple(_operator_row(*pair, steps) for pair in shown)),),
        ),
    )


def _left_out(tree: ModuleTree) -> tuple[Block, ...]:
    rest = len(tree.rows) - _MOST_MODULES
    if rest <= 0:
        return ()
    return (Paragraph(f"{rest} more are in the JSON report.", "note"),)


def _row(row: ModuleWork, steps: int) -> tuple[str, ...]:
    least = "" if row.counted_fraction >= _ALL else "at least "
    return (
        formatting.printable(row.path or OUTSIDE),
        str(row.instances) if row.path else "",
        formatting.duration(per_step(steps, row.device_ns)),
        formatting.percent(row.device_fraction),
        formatting.duration(per_step(steps, row.own_ns)),
        _backward(row, steps),
        least + formatting.quantity(per_step(steps, row.flops), "").strip(),
        least + formatting.quantity(per_step(steps, row.bytes), "").strip(),
        roof_percent(row.roof_fraction),
        row.kind,
    )


def _operator_row(module: ModuleWork, row: ModuleOperator, steps: int) -> tuple[str, ...]:
    # What a generated kernel is made of says more than its name.
    parts = fused_names(row.fused) if row.fused != () and row.inner == () else row.inner
    inner = f" ({', '.join(parts)})" if parts not in ((), (row.name,)) else ""
    return (
        formatting.printable(lines_text(row.source, row.fused)),
        formatting.printable(_function(row.source)),
        formatting.printable(f"{row.name}{inner}"),
        formatting.printable(module.path or OUTSIDE),
        formatting.duration(per_step(steps, row.device_ns)),
        formatting.percent(row.device_fraction),
        _backward(row, steps),
        row.kind,
    )


def _function(source: SourceLine | None) -> str:
    """Its name, and where it begins if that is all that is known of the line."""
    if source is None or source.line is not None:
        return source.function if source else ""
    return f"{source.function}, from line {source.function_line}"


def _backward(row: ModuleWork | ModuleOperator, steps: int) -> str:
    ns = sum(part.device_ns for part in row.phases if part.phase == "backward")
    return formatting.duration(per_step(steps, ns)) if ns else ""


SECTION = Section(
    key="modules", title=titled("Modules"), fields=("modules",), summary=_summary, body=_body
)
