"""Replayed CUDA graphs: what they took, and where their operators come from."""

from collections.abc import Sequence

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Block, Column, Fact, Facts, Paragraph, Table
from gpuprof.reports.figures import per_step
from gpuprof.reports.sections.section import Section, titled
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.graph_figures import ReplayedGraph

_MOST_ROWS = 20
# Sources of operators that a terminal names.
_NAMED = 2
_COLUMNS = (
    Column("Operators from"),
    Column("Replays", "number"),
    Column("Pieces of work", "number"),
    Column("Device time", "number"),
    Column("With an operator", "number"),
    Column("Compared by"),
)
# How to get operators for replays that have none.
_REMEDY = (
    "operators of a graph run when it is captured: give `gpuprof analyze` the trace of the "
    "capture, or one of the same work without graphs, beside this one"
)
_OF_A_RUN = "operators of a graph run when it is captured, and gpuprof did not record that"
# Of the time of replays: less without an operator is not worth a remedy.
_LITTLE = 0.005


def _summary(analysis: Analysis) -> Sequence[Block]:
    graphs = analysis.graphs
    if not graphs:
        return ()
    steps = analysis.steps.profiled
    device_ns = sum(graph.device_ns for graph in graphs)
    with_op_ns = sum(graph.with_op_ns for graph in graphs)
    replays = formatting.counted(sum(graph.replays for graph in graphs), "replay")
    time = formatting.duration(per_step(steps, device_ns))
    each = " a step" if steps else ""
    sources = dict.fromkeys(map(_source, filter(_is_told, graphs)))
    said = f"{time} device time{each}"
    if device_ns:
        said = f"{said}, {formatting.percent(with_op_ns / device_ns)} with an operator"
    if sources:
        more = "; and others" if len(sources) > _NAMED else ""
        said = f"{said}, from {'; '.join(list(sources)[:_NAMED])}{more}"
    if with_op_ns < (1 - _LITTLE) * device_ns:
        said = f"{said}; {_remedy(analysis)}"
    return (Facts((Fact("CUDA graphs", replays, said),)),)


def _remedy(analysis: Analysis) -> str:
    return _OF_A_RUN if analysis.source.startswith("gpuprof") else _REMEDY


def _is_told(graph: ReplayedGraph) -> bool:
    return graph.told_by != ""


def _source(graph: ReplayedGraph) -> str:
    if graph.told_by == "":
        return "unknown"
    found = "its capture" if graph.told_by == "capture" else "eager work"
    if graph.label:
        found = f"{found} {graph.label}"
    return f"{found} in {graph.file}" if graph.file else found


def _body(analysis: Analysis) -> Sequence[Block]:
    if not analysis.graphs:
        return ()
    steps = analysis.steps.profiled
    device_ns = sum(graph.device_ns for graph in analysis.graphs)
    missing_ns = device_ns - sum(graph.with_op_ns for graph in analysis.graphs)
    lead = (
        "The work of a replay has the operators that ran when its graph was captured, or those of "
        "eager work alike, compared in order by kernel name, grid and block. What fits several of "
        "them has an operator where all agree on its name and arguments."
    )
    blocks: list[Block] = [
        Paragraph(lead),
        Table(_COLUMNS, tuple(_row(graph, steps) for graph in analysis.graphs[:_MOST_ROWS])),
    ]
    if missing_ns > _LITTLE * device_ns:
        missing = formatting.duration(per_step(steps, missing_ns))
        note = f"{missing} have no operator: {_remedy(analysis)}."
        blocks.append(Paragraph(note, "note"))
    left = len(analysis.graphs) - _MOST_ROWS
    if left > 0:
        blocks.append(Paragraph(f"{formatting.counted(left, 'other graph')}.", "note"))
    return tuple(blocks)


def _row(graph: ReplayedGraph, steps: int) -> tuple[str, ...]:
    compared = "name, grid and block" if graph.by_size else "name or order alone"
    share = graph.with_op_ns / graph.device_ns if graph.device_ns else None
    unsure = ""
    if graph.unsure_ns:
        unsure = f" ({formatting.percent(graph.unsure_ns / graph.device_ns)} as one of several)"
    return (
        _source(graph),
        formatting.count(per_step(steps, graph.replays)),
        formatting.count(per_step(steps, graph.pieces)),
        formatting.duration(per_step(steps, graph.device_ns)),
        f"{formatting.percent(share)}{unsure}",
        compared if _is_told(graph) else "",
    )


SECTION = Section(
    key="graphs",
    title=titled("CUDA graphs"),
    fields=("graphs",),
    summary=_summary,
    body=_body,
)
