"""The sections of a report, in their order. Terminal, Markdown, page and JSON loop over them.

Those of plug-ins stand before what the figures rest on.
"""

from typing import Final

from gpuprof.collectors.plugins import PluginGroup
from gpuprof.reports.sections import (
    activity,
    advice,
    checklist,
    coverage,
    explained,
    graphs,
    host,
    idle,
    kernels,
    links,
    machine,
    measured,
    memory,
    modules,
    nccl,
    operators,
    overlap,
    overview,
    parallelism,
    ranges,
    ranks,
    reading,
    recorder,
    roofline,
    settings,
    slow_steps,
    step,
    step_readings,
    timeline,
    totals,
    transfers,
    waited_for,
)
from gpuprof.reports.sections.plugged import fault, plugged_sections
from gpuprof.reports.sections.section import Section
from gpuprof.roofline.analysis import Analysis

SECTIONS: Final[tuple[Section, ...]] = (
    # What limits the program, and what to do about it.
    overview.SECTION,
    step.SECTION,
    advice.SECTION,
    roofline.SECTION,
    # The work.
    totals.SECTION,
    modules.SECTION,
    operators.SECTION,
    explained.SECTION,
    kernels.SECTION,
    graphs.SECTION,
    ranges.SECTION,
    # Time: of the host, of steps, of the device's memory and clocks.
    idle.SECTION,
    host.SECTION,
    timeline.SECTION,
    slow_steps.SECTION,
    memory.SECTION,
    step_readings.SECTION,
    activity.SECTION,
    # Ranks and what they say to each other.
    waited_for.SECTION,
    ranks.SECTION,
    recorder.SECTION,
    parallelism.SECTION,
    transfers.SECTION,
    links.SECTION,
    overlap.SECTION,
    nccl.SECTION,
    # What the figures rest on.
    measured.SECTION,
    checklist.SECTION,
    machine.SECTION,
    settings.SECTION,
    coverage.SECTION,
    reading.SECTION,
)


PLUGGED: Final = PluginGroup(
    name="gpuprof.sections",
    adds="section",
    kinds=(Section,),
    claims=lambda section: (section.key,),
    ours=lambda: [section.key for section in SECTIONS],
    fault=fault,
)


def sections_of(analysis: Analysis) -> tuple[Section, ...]:
    """Those that may have anything to show of `analysis`."""
    place = SECTIONS.index(measured.SECTION)
    every = (*SECTIONS[:place], *plugged_sections(PLUGGED), *SECTIONS[place:])
    return tuple(section for section in every if analysis.holds_work or not section.of_work)
