"""How to read a page, for someone who has never seen a roofline."""

from collections.abc import Sequence

from gpuprof.reports.blocks import Block, ClassLegend, Prose
from gpuprof.reports.figures import OVER_PEAK
from gpuprof.reports.sections.section import Section, titled
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.classes import BottleneckClass, classes

_WHY_OVER = OVER_PEAK.partition(": ")[2]


def _page_only(analysis: Analysis) -> Sequence[Block]:
    counted = ""
    if analysis.source == "ncu":
        counted = " Here Nsight Compute counted both: operations that ran, and bytes that moved."
    totals = "" if analysis.steps.profiled else " (here: totals, as no whole step was profiled)"
    return (
        Prose(
            (
                "A **roofline** puts each piece of work at its arithmetic intensity (FLOP per byte "
                "of compulsory traffic) and the rate it reached. Under the slanted line memory "
                "bandwidth is the limit, under a flat line the arithmetic units are. The distance "
                "up to the lowest line above a point is what there is to gain. Larger points took "
                "more of the device's time: begin with those far below their roof. A minimum size "
                "is added to every point, so that small ones can be seen: areas are not in "
                "proportion to the time. Solid lines are datasheet peaks (dense, no sparsity), "
                "dashed ones were measured on this device.",
                "**Roof** is the least time that the ceilings allow for the work over the time it "
                "took. It says how good the implementation is, not whether the work is needed. "
                "FLOPs follow from the operators' shapes and count a multiply-add as two; each "
                "precision is compared with its own peak. Bytes are compulsory traffic: each input "
                "read once, each output written once. A cache that holds the data between kernels "
                "can beat the DRAM roof: the class is cache where it explains that. Other shares "
                f"over 100% are shown as they are and marked **!**, since that means {_WHY_OVER}."
                f"{counted}",
                f"Calls and ms are means for one step over the profiled steps{totals}; step time "
                "and MFU come from steps that ran without the profiler. **-** is unknown: no cost "
                "model for the operator, or no ceiling for the device. Prefixes are decimal (1 GB "
                "is 10⁹ bytes).",
                "Classes:",
            )
        ),
        ClassLegend(
            tuple(row for row in classes().values() if row.mark and _is_shown(row, analysis))
        ),
    )


def _is_shown(row: BottleneckClass, analysis: Analysis) -> bool:
    """Whether a class has its place in the legend: what most steps do not have only where it is."""
    if not row.rare:
        return True
    points = (*analysis.kernels, *analysis.ops, *analysis.ranges)
    return any(point.bottleneck.kind == row.name for point in points)


SECTION = Section(
    key="reading", title=titled("How to read this page"), of_work=True, page_only=_page_only
)
