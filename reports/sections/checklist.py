"""The checklists of the largest kernels: what keeps each from its roof, with evidence."""

from collections.abc import Iterator, Sequence

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Block, Column, Paragraph, Table
from gpuprof.reports.checklist import check_facts
from gpuprof.reports.figures import per_step
from gpuprof.reports.sections.section import Section, titled
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.checklist_figures import KernelCheck, KernelChecklist

_COLUMNS = (
    Column("Kernel"),
    Column("Check"),
    Column("Judged"),
    Column("Gain", "number"),
    Column("Evidence"),
)
_LEAD = (
    "Each check is judged by the most that mending it could take off the kernel's time, which is "
    "never more than what lies above its roof; under 5% it is fine. Gains of one kernel overlap. "
    "Evidence is counted by Nsight Compute where launches were counted, and else of the launch "
    "alone."
)
_NOT_COUNTED = (
    " None was counted here: gpuprof run --counters tells what warps wait for, coalescing, bank "
    "conflicts and divergence."
)


def _rows(checklist: KernelChecklist, steps: int) -> Iterator[tuple[str, ...]]:
    name = formatting.joined(
        (formatting.kernel_name(checklist.kernel), checklist.op, checklist.phase)
    )
    # In the order of `check_facts`.
    ordered = sorted(checklist.checks, key=lambda one: -(one.gain_fraction or 0.0))
    for check, fact in zip(ordered, check_facts(checklist.checks), strict=True):
        gain = _gain(check, checklist, steps)
        yield (name, fact.label, fact.value, gain, fact.note)
        name = ""


def _gain(check: KernelCheck, checklist: KernelChecklist, steps: int) -> str:
    if not check.costs or check.gain_fraction is None:
        return ""
    return formatting.duration(per_step(steps, check.gain_fraction * checklist.device_ns))


def _body(analysis: Analysis) -> Sequence[Block]:
    if not analysis.checklists:
        return ()
    rows = tuple(
        row
        for checklist in analysis.checklists
        for row in _rows(checklist, analysis.steps.profiled)
    )
    counted = any(checklist.counted for checklist in analysis.checklists)
    return (Paragraph(_LEAD if counted else f"{_LEAD}{_NOT_COUNTED}"), Table(_COLUMNS, rows))


SECTION = Section(
    key="checklist",
    title=titled("Checklist of the largest kernels"),
    fields=("checklists",),
    body=_body,
)
