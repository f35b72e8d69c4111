"""The checklists of the largest kernels: what keeps each from its roof, with evidence."""

from collections.abc import Sequence

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Block, Details, Facts, Paragraph
from gpuprof.reports.checklist import check_facts
from gpuprof.reports.figures import per_step
from gpuprof.reports.sections.section import Section, titled
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.checklist_figures import KernelChecklist

# Kernels that a page shows before it folds the others away.
_UNFOLDED = 4
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


def _facts(checklist: KernelChecklist, steps: int) -> Facts:
    # A kernel without an operator is its own.
    operator = "" if checklist.op == checklist.kernel else checklist.op
    device_ns = per_step(steps, checklist.device_ns)
    time = f"{formatting.duration(device_ns)}{' a step' if steps else ''}"
    title = formatting.joined(
        (formatting.kernel_name(checklist.kernel), operator, checklist.phase, time)
    )
    return Facts(tuple(check_facts(checklist.checks, device_ns)), title)


def _body(analysis: Analysis) -> Sequence[Block]:
    if not analysis.checklists:
        return ()
    steps = analysis.steps.profiled
    kernels = tuple(_facts(checklist, steps) for checklist in analysis.checklists)
    counted = any(checklist.counted for checklist in analysis.checklists)
    lead = Paragraph(_LEAD if counted else f"{_LEAD}{_NOT_COUNTED}")
    rest = kernels[_UNFOLDED:]
    if not rest:
        return (lead, *kernels)
    folded = Details(formatting.counted(len(rest), "more kernel"), rest)
    return (lead, *kernels[:_UNFOLDED], folded)


SECTION = Section(
    key="checklist",
    title=titled("Checklist of the largest kernels"),
    fields=("checklists",),
    body=_body,
)
