"""A kernel's checklist in words."""

from collections.abc import Iterable, Iterator

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Fact
from gpuprof.roofline.checklist_figures import CheckedValue, KernelCheck

_TITLES = {
    "occupancy": "Occupancy",
    "stalls": "Stalls",
    "coalescing": "Coalescing",
    "bank conflicts": "Bank conflicts",
    "divergence": "Divergence",
    "tail": "Tail",
}


def check_facts(checks: Iterable[KernelCheck], device_ns: float | None = None) -> Iterator[Fact]:
    """Each check: what it found, and whether that costs; the costly ones first.

    With the kernel's time also how much that is.
    """
    for check in sorted(checks, key=lambda one: -(one.gain_fraction or 0.0)):
        evidence = "; ".join(map(_value, check.values))
        judged = judgement(check)
        if check.costs and device_ns is not None:
            judged += f", {formatting.duration((check.gain_fraction or 0.0) * device_ns)}"
        yield Fact(_TITLES[check.subject], judged, evidence)


def judgement(check: KernelCheck) -> str:
    """ "costs up to 12%", "fine", or that it is unknown."""
    if check.costs is None:
        return "not counted"
    if not check.costs:
        return "fine"
    by_launch = " by its launch" if check.source == "launch" else ""
    return f"costs up to {formatting.percent(check.gain_fraction)}{by_launch}"


def _value(value: CheckedValue) -> str:
    if value.unit == "%":
        return f"{formatting.percent(value.value)} {value.name}"
    number = formatting.significant(value.value)
    unit = f" {value.unit}" if value.unit else ""
    return f"{number}{unit} {value.name}"
