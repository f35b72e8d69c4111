"""What was run and how it ended, the figures that tell most, and what holds the step back."""

from collections.abc import Sequence

from gpuprof.reports import formatting
from gpuprof.reports.blocks import (
    Block,
    BottleneckVerdict,
    Heading,
    Line,
    Notices,
    SectionLink,
    Tile,
    Tiles,
)
from gpuprof.reports.computation import Computation
from gpuprof.reports.computed.of_step import (
    of_idle_share,
    of_loss,
    of_modelled_share,
    of_roof_share,
)
from gpuprof.reports.figures import verdict_sentence
from gpuprof.reports.sections.headline import headline
from gpuprof.reports.sections.section import Section, titled
from gpuprof.reports.sections.step import step_time_fact, stretch_fact
from gpuprof.reports.utilization import headline_fact
from gpuprof.roofline.analysis import NEGLIGIBLE, Analysis
from gpuprof.roofline.classes import AT_ROOF, UNKNOWN


def device_line(analysis: Analysis) -> str:
    """The device and the versions that decide its speed, on one line."""
    fingerprint = analysis.fingerprint
    name = analysis.device.name if analysis.device else "no device recorded"
    versions = (
        ("torch", fingerprint.torch),
        ("CUDA", fingerprint.cuda),
        ("HIP", fingerprint.hip),
        ("driver", fingerprint.driver),
    )
    return formatting.joined([name, *(f"{label} {value}" for label, value in versions if value)])


def ending_sentence(analysis: Analysis) -> str:
    """How the program stopped, where that was not by finishing; else ""."""
    code = "" if analysis.exit_code is None else f" (exit code {analysis.exit_code})"
    return {
        "exception": f"The script ended with an exception{code}; figures cover what ran before.",
        "sigterm": "The script was stopped by SIGTERM; figures cover what ran before.",
        "sighup": "The script was stopped by SIGHUP; figures cover what ran before.",
        "killed": f"The script was killed or crashed{code}; figures cover what ran before.",
        "interrupted": "The script was interrupted; figures cover what ran before.",
        "exit": f"The script exited early{code}." if analysis.exit_code else "",
    }.get(analysis.ending, "")


def _warnings(analysis: Analysis) -> tuple[Block, ...]:
    """How many there are, for they stand at the end."""
    if not analysis.warnings:
        return ()
    number = len(analysis.warnings)
    makes = "makes" if number == 1 else "make"
    said = f"{formatting.counted(number, 'warning')} at the end {makes} figures doubtful."
    return (SectionLink(said, "coverage"),)


def _summary(analysis: Analysis) -> Sequence[Block]:
    ending = ending_sentence(analysis)
    return (
        Heading(analysis.title),
        *_device(analysis),
        headline(analysis),
        *((Line(ending, alert=True),) if ending else ()),
    )


def _body(analysis: Analysis) -> Sequence[Block]:
    ending = ending_sentence(analysis)
    return (
        Heading(analysis.title),
        *_device(analysis),
        headline(analysis),
        *((Notices((ending,)),) if ending else ()),
        *_warnings(analysis),
        *_step_blocks(analysis),
    )


def _device(analysis: Analysis) -> tuple[Line, ...]:
    return (Line(device_line(analysis)),) if analysis.holds_work else ()


def _step_blocks(analysis: Analysis) -> tuple[Block, ...]:
    if not analysis.holds_work:
        return ()
    verdict = BottleneckVerdict(
        analysis.bottleneck.kind, verdict_sentence(analysis), *_share(analysis)
    )
    return Tiles(_tiles(analysis)), verdict


def _share(analysis: Analysis) -> tuple[str, Computation | None]:
    """Of the largest loss; "" where the step has no such part."""
    split = analysis.split
    lost_ns = 0 if split is None else split.nanoseconds(analysis.bottleneck.kind)
    if split is None or not lost_ns:
        return "", None
    return formatting.percent(lost_ns / split.step_ns), of_loss(analysis, split)


def _tiles(analysis: Analysis) -> tuple[Tile, ...]:
    """Step time, MFU or MBU, share of the roof, waiting, the profiler's stretch, coverage."""
    time, stretch = (
        step_time_fact(analysis.steps),
        stretch_fact(analysis.steps, analysis.device_state),
    )
    utilization = headline_fact(analysis)
    covered = analysis.coverage.with_flops
    return (
        Tile("Step time", time.value, time.note, time.computed),
        Tile(utilization.label, utilization.value, utilization.note, utilization.computed),
        _roof_tile(analysis),
        _idle_tile(analysis),
        Tile(
            "Modelled",
            formatting.percent(covered),
            "no device work seen" if covered is None else "of device time has a FLOP model",
            of_modelled_share(analysis),
        ),
        Tile("Profiler stretch", stretch.value, stretch.note, stretch.computed),
    )


def _roof_tile(analysis: Analysis) -> Tile:
    title, split = "Device work at its roof", analysis.split
    unmodelled_ns = split.nanoseconds(UNKNOWN) if split is not None else 0
    modelled_ns = split.busy_ns - unmodelled_ns if split is not None else 0
    if split is None or analysis.roof_source is None or not modelled_ns:
        return Tile(title, formatting.UNKNOWN, "no ceiling or no model")
    # As the bar below has it: each operator against its own roof.
    note = "of the device time if every operator ran at its roof"
    unmodelled = unmodelled_ns / split.busy_ns
    if unmodelled > NEGLIGIBLE:
        note += f"; without the {formatting.percent(unmodelled)} that have no model"
    share = formatting.percent(split.nanoseconds(AT_ROOF) / modelled_ns)
    return Tile(title, share, note, of_roof_share(split))


def _idle_tile(analysis: Analysis) -> Tile:
    split = analysis.split
    if split is None or not split.idle_parts:
        return Tile("Waiting for the host", formatting.UNKNOWN, "the step has no split")
    idle = split.idle_ns / split.step_ns if split.step_ns else 0.0
    time, step = formatting.duration(split.idle_ns), formatting.step_duration(split.step_ns)
    return Tile(
        split.idle_name.capitalize(),
        formatting.percent(idle),
        f"{time} of {split.whole} of {step}",
        of_idle_share(split) if split.step_ns else None,
    )


SECTION = Section(
    key="overview",
    title=titled(""),
    fields=(
        "title",
        "rank",
        "world_size",
        "ending",
        "exit_code",
        "bottleneck",
    ),
    summary=_summary,
    body=_body,
)
