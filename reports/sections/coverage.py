"""How much of the device's time has an operator and a model, and what makes figures doubtful."""

from collections.abc import Sequence
from itertools import groupby

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Block, Column, Fact, Facts, Notices, Paragraph, Table
from gpuprof.reports.figures import per_step, step_basis
from gpuprof.reports.sections.section import Section
from gpuprof.roofline.analysis import Analysis, Coverage

# Operators without a model that a terminal names.
_NAMED = 5
# The rows of kernels may show so much less than the operators without a word.
_WORTH_SAYING = 0.005
# Device time below this share of the step is set beside it.
_LITTLE = 0.5


def coverage_sentence(analysis: Analysis) -> str:
    """The shares of device time that have an op, a FLOP model and a byte model."""
    coverage = analysis.coverage
    outside = ""
    if coverage.outside_ns:
        left_out = formatting.duration(coverage.outside_ns)
        outside = f" {left_out} of device work belong to no profiled step and are left out."
    if not coverage.device_ns:
        return f"No device work was recorded in the profiled steps.{outside}"
    if analysis.source == "ncu":
        return (
            f"Of {_device_time(analysis)} Nsight Compute counted the operations of "
            f"{formatting.percent(coverage.with_flops)} and the DRAM traffic of "
            f"{formatting.percent(coverage.with_bytes)}; it names no operators."
        )
    if _names_no_operators(analysis):
        return (
            f"Of {_device_time(analysis)} {formatting.percent(coverage.with_bytes)} are copies and "
            "fills of known size; the recording has no operators, which would tell what kernels "
            "compute: `torch.autograd.profiler.emit_nvtx(record_shapes=True)` marks them for "
            f"Nsight Systems.{outside}"
        )
    return (
        f"{formatting.percent(coverage.with_op)} of {_device_time(analysis)} "
        f"has an operator, {formatting.percent(coverage.with_flops)} a FLOP model, "
        f"{formatting.percent(coverage.with_bytes)} a byte model.{_of_kernels(coverage)}"
        f"{_of_a_step(analysis)}{outside}"
    )


def _names_no_operators(analysis: Analysis) -> bool:
    """Whether all kernels are alike in what is not known of them; counters may tell it."""
    return analysis.source == "nsys" and not analysis.coverage.with_op and analysis.measured is None


def _of_kernels(coverage: Coverage) -> str:
    """How much of the time the rows of kernels count themselves, where that is less."""
    of_kernels = coverage.kernels_counted
    if of_kernels is None or coverage.with_flops is None or coverage.with_bytes is None:
        return ""
    if min(coverage.with_flops, coverage.with_bytes) - of_kernels < _WORTH_SAYING:
        return ""
    return (
        f" In rows of kernels {formatting.percent(of_kernels)} shows a rate: other kernels help or "
        "share the work of an operator that has a model."
    )


def _device_time(analysis: Analysis) -> str:
    steps = analysis.steps.profiled
    device_ns = per_step(steps, analysis.coverage.device_ns)
    return f"{formatting.duration(device_ns)} device time{' a step' if steps else ''}"


def _of_a_step(analysis: Analysis) -> str:
    """How little of a step that device time is, where coverage of it says little of the step."""
    step_ns, steps = analysis.steps.length_ns, analysis.steps.profiled
    if not step_ns or not steps:
        return ""
    device_ns = analysis.coverage.device_ns / steps
    share = device_ns / step_ns
    if share > _LITTLE:
        return ""
    return (
        f" That is {formatting.percent(share)} of the step's {formatting.step_duration(step_ns)}."
    )


def _warnings(analysis: Analysis) -> tuple[Block, ...]:
    said = tuple(map(formatting.sentence, analysis.warnings))
    return (Notices(said),) if said else ()


def _plugins(analysis: Analysis) -> tuple[Block, ...]:
    """What each plug-in made of the analysis."""
    facts = tuple(
        Fact("Plug-in", distribution, "; ".join(f"{use.adds} {use.of}" for use in uses))
        for distribution, uses in groupby(analysis.plugins, lambda use: use.distribution)
    )
    return (Facts(facts),) if facts else ()


def _basis(analysis: Analysis) -> Sequence[Block]:
    if not analysis.holds_work:
        return (*_plugins(analysis), *_warnings(analysis))
    facts = [Fact("Coverage", coverage_sentence(analysis))]
    unmodelled, steps = analysis.coverage.unmodelled, analysis.steps.profiled
    if unmodelled and not _names_no_operators(analysis):
        alone = analysis.source == "ncu"
        name_of = formatting.kernel_name if alone else str
        names = ", ".join(
            f"{name_of(op.name)} ({formatting.duration(per_step(steps, op.device_ns))})"
            for op in unmodelled[:_NAMED]
        )
        left = len(unmodelled) - _NAMED
        names = f"{names} and {left} more" if left > 0 else names
        label = "Not counted" if alone else "No model"
        facts.append(Fact(label, f"{names}{', in one step' if steps else ''}"))
    return (Facts(tuple(facts)), *_plugins(analysis), *_warnings(analysis))


def _body(analysis: Analysis) -> Sequence[Block]:
    if not analysis.holds_work:
        return (*_plugins(analysis), *_warnings(analysis))
    return (*_coverage(analysis), *_plugins(analysis), *_warnings(analysis))


def _coverage(analysis: Analysis) -> Sequence[Block]:
    lead = Paragraph(coverage_sentence(analysis))
    coverage, steps = analysis.coverage, analysis.steps.profiled
    if not coverage.unmodelled:
        return (lead,)
    columns = (
        Column("Operator without a full model", "code"),
        Column("Calls", "number"),
        Column("Device time", "number"),
        Column("Share", "number"),
    )
    rows = tuple(
        (
            op.name,
            formatting.count(per_step(steps, op.calls)),
            formatting.duration(per_step(steps, op.device_ns)),
            formatting.percent(op.device_ns / coverage.device_ns if coverage.device_ns else None),
        )
        for op in coverage.unmodelled
    )
    basis = Paragraph(f"Calls and device time are of {step_basis(steps)}.", "note")
    return (lead, Table(columns, rows), basis)


def _title(analysis: Analysis) -> str:
    if not analysis.holds_work:
        return "Warnings"
    return "Coverage and warnings" if analysis.warnings else "Coverage"


SECTION = Section(
    key="coverage",
    title=_title,
    fields=("coverage", "plugins", "installed_plugins", "warnings"),
    basis=_basis,
    body=_body,
)
