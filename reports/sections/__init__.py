"""The sections of a report, in their order. Terminal, Markdown, page and JSON loop over them."""

from typing import Final

from gpuprof.reports.sections import (
    advice,
    coverage,
    explained,
    graphs,
    host,
    idle,
    kernels,
    machine,
    measured,
    memory,
    modules,
    operators,
    overlap,
    overview,
    ranges,
    reading,
    roofline,
    settings,
    slow_steps,
    step,
    totals,
    transfers,
)
from gpuprof.reports.sections.section import Section

SECTIONS: Final[tuple[Section, ...]] = (
    overview.SECTION,
    step.SECTION,
    advice.SECTION,
    idle.SECTION,
    settings.SECTION,
    roofline.SECTION,
    totals.SECTION,
    modules.SECTION,
    operators.SECTION,
    explained.SECTION,
    kernels.SECTION,
    ranges.SECTION,
    host.SECTION,
    slow_steps.SECTION,
    memory.SECTION,
    transfers.SECTION,
    overlap.SECTION,
    graphs.SECTION,
    coverage.SECTION,
    measured.SECTION,
    machine.SECTION,
    reading.SECTION,
)
