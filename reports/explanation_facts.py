"""What is known of one operator or kernel, layer by layer, as labelled values."""

from collections.abc import Iterator
from typing import Final

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Fact, Facts
from gpuprof.reports.callers import caller_facts
from gpuprof.reports.checklist import check_facts
from gpuprof.reports.figures import per_step
from gpuprof.reports.fused_operators import fused_facts
from gpuprof.reports.kernel_name_words import name_in_words
from gpuprof.reports.shapes import readable_shapes
from gpuprof.roofline.analysis import RooflinePoint
from gpuprof.roofline.explanation_figures import (
    Backend,
    Dispatch,
    ExplainedKernel,
    LaunchConfiguration,
    TimeSpread,
    WorkLayers,
)

# Launches with a configuration of their own that are shown.
_MOST_LAUNCHES: Final = 4
_MOST_KERNELS: Final = 12


def work_title(point: RooflinePoint) -> str:
    """An operator with its shapes, or a kernel with its operator."""
    shapes = readable_shapes(*_shapes(point))
    name = formatting.short_name(point.name)
    launched = f"of {point.op}" if point.op and point.op != point.name else ""
    return formatting.joined((name, launched, point.phase, shapes))


def layer_facts(point: RooflinePoint, layers: WorkLayers, steps: int) -> Iterator[Facts]:
    """The layers of `point`, each with a title; those of which nothing is known are left out.

    Amounts are means for one of so many profiled steps, totals where there were none.
    """
    origin = tuple(_origin(point, layers))
    if origin:
        yield Facts(origin, "Where it comes from")
    yield from caller_facts(layers.callers)
    if layers.dispatch is not None:
        yield Facts(tuple(_dispatch(layers.dispatch)), "Which implementation ran")
    # On a CPU an operator's own work has no other name than its own.
    kernels = [each for each in layers.kernels if (each.kind, each.name) != ("op", point.name)]
    for kernel in kernels[:_MOST_KERNELS]:
        name = formatting.short_name(kernel.name)
        yield Facts(tuple(_kernel(kernel, steps)), f"Kernel {name}")
    rest = kernels[_MOST_KERNELS:]
    if rest:
        time_ns = sum(kernel.time.total_ns for kernel in rest)
        number = formatting.counted(len(rest), "other kernel")
        more = Fact(number, formatting.duration(per_step(steps, time_ns)))
        yield Facts((more,), "Further kernels")
    yield Facts(tuple(_time(point, layers, steps)), "Time on the device")
    if layers.counters:
        yield Facts(tuple(_counters(layers)), "Hardware counters")


def unknown_facts(layers: WorkLayers) -> Iterator[Facts]:
    """What the capture does not hold, and what would tell it."""
    if layers.unknown:
        facts = (Fact(each.what, f"told by {each.told_by}") for each in layers.unknown)
        yield Facts(tuple(facts), "Not known here")


def _shapes(point: RooflinePoint) -> tuple[str, str]:
    if point.level == "kernel":
        return point.op_detail, point.op
    return point.detail, point.name


def _origin(point: RooflinePoint, layers: WorkLayers) -> Iterator[Fact]:
    detail, operator = _shapes(point)
    if layers.line:
        yield Fact("Line", layers.line)
    if layers.module:
        yield Fact("Module", layers.module)
    yield from fused_facts(point)
    if layers.called_by:
        yield Fact("Operators", " > ".join(layers.called_by))
    elif operator and operator != point.name:
        yield Fact("Operator", operator)
    readable = readable_shapes(detail, operator)
    if readable:
        yield Fact("Shapes", readable, recorded=detail)
    if point.phase:
        yield Fact("Phase", point.phase)


def _dispatch(dispatch: Dispatch) -> Iterator[Fact]:
    yield Fact("Ran", dispatch.ran, f"by {dispatch.operator}")
    for backend in dispatch.others:
        yield from _backend(backend)
    for note in dispatch.notes:
        yield Fact("Note", formatting.sentence(note))
    yield Fact("Source", dispatch.source)


def _backend(backend: Backend) -> Iterator[Fact]:
    label = f"Not {backend.name}"
    for condition in backend.violated:
        has = f", here {condition.recorded}" if condition.recorded else ""
        yield Fact(label, f"needs: {condition.text}{has}", condition.remedy)
        label = ""
    if backend.violated:
        return
    if backend.unknown:
        yield Fact(label, "not known", f"not recorded: {'; '.join(backend.unknown)}")
    else:
        yield Fact(label, "could run", "the recorded arguments meet its conditions")


def _kernel(kernel: ExplainedKernel, steps: int) -> Iterator[Fact]:
    if formatting.short_name(kernel.name) != kernel.name:
        yield Fact("Name", kernel.name)
    if kernel.decoded is not None:
        yield Fact("Its name says", name_in_words(kernel.decoded))
    if kernel.role in ("helper", "shared"):
        meaning = {
            "helper": "helps another kernel, which does the operator's work",
            "shared": "one of several that share the operator's work",
        }
        yield Fact("Role", kernel.role, meaning[kernel.role])
    for launch in kernel.launches[:_MOST_LAUNCHES]:
        yield from _launch(launch)
    further = len(kernel.launches) - _MOST_LAUNCHES
    if further > 0:
        yield Fact("", f"and {formatting.counted(further, 'other configuration')}")
    yield Fact("Time", *_spread(kernel.time, steps, "launch", "launches"))
    # Occupancy and waves of the launch stand above.
    yield from check_facts(check for check in kernel.checks if kernel.counted or check.costs)


def _launch(launch: LaunchConfiguration) -> Iterator[Fact]:
    grid, block = (
        None if size is None else "x".join(map(str, size)) for size in (launch.grid, launch.block)
    )
    parts = (
        f"grid {grid}" if grid else "",
        f"block {block}" if block else "",
        _of_each(launch.registers_per_thread, "registers a thread"),
        _shared(launch.shared_bytes),
    )
    value = ", ".join(part for part in parts if part)
    yield Fact("Launch", value, formatting.counted(launch.number, "launch", "launches"))
    if launch.occupancy is None:
        return
    limits = " and ".join(launch.limited_by)
    blocks = formatting.counted(launch.blocks_per_multiprocessor or 0, "block")
    note = f"{blocks} on a multiprocessor at a time, limited by {limits}"
    yield Fact("Occupancy", f"{formatting.percent(launch.occupancy)} in theory", note)
    if launch.waves is not None:
        yield Fact(
            "Waves", formatting.significant(launch.waves), "times that the grid fills the device"
        )


def _of_each(number: int | None, what: str) -> str:
    return "" if number is None else f"{number} {what}"


def _shared(number: int | None) -> str:
    return "" if number is None else f"{formatting.count(number)} B shared memory a block"


def _time(point: RooflinePoint, layers: WorkLayers, steps: int) -> Iterator[Fact]:
    calls = per_step(steps, point.calls)
    basis = "a step" if steps else "in all"
    yield Fact("Calls", f"{formatting.count(calls)} {basis}")
    device_ns = formatting.duration(per_step(steps, point.device_ns))
    share = f"{formatting.percent(point.device_fraction)} of all device time"
    yield Fact("Device time", f"{device_ns} {basis}", share)
    if layers.time is not None and layers.time.number > 1:
        noun = ("call", "calls") if point.level == "op" else ("launch", "launches")
        yield Fact("Each", *_spread(layers.time, 0, *noun))


def _spread(time: TimeSpread, steps: int, singular: str, plural: str) -> tuple[str, str]:
    """The median of each, and how far apart they are."""
    number = formatting.counted(time.number, singular, plural)
    if time.number == 1:
        return formatting.duration(time.total_ns), number
    lowest, highest = formatting.duration(time.minimum_ns), formatting.duration(time.maximum_ns)
    note = f"median of {number}, {lowest} to {highest}"
    if time.quartiles_ns is not None and time.median_ns:
        low, high = time.quartiles_ns
        note += f", interquartile range {formatting.percent((high - low) / time.median_ns)}"
    if steps:
        note += f"; {formatting.duration(per_step(steps, time.total_ns))} a step"
    return formatting.duration(time.median_ns), note


def _counters(layers: WorkLayers) -> Iterator[Fact]:
    for each in layers.counters:
        mean = f", mean of {each.launches} launches" if each.launches > 1 else ""
        yield Fact(each.name, _counter(each.value, each.unit), f"{each.metric}{mean}")
    if layers.further_counters:
        others = formatting.counted(layers.further_counters, "other counter")
        yield Fact("", f"{others} in the capture")


def _counter(value: float, unit: str) -> str:
    if unit == "%":
        return formatting.percent(value / 100)
    if unit in ("ns", "nsecond"):
        return formatting.duration(value)
    if unit in ("byte", "B"):
        return formatting.byte_count(value)
    return formatting.quantity(value, unit).strip()
