"""An explanation of one operator or kernel, in a terminal."""

from collections.abc import Iterable, Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Fact, Facts
from gpuprof.reports.figures import per_step
from gpuprof.reports.kernel_name_words import name_in_words
from gpuprof.reports.point_rows import point_figures
from gpuprof.reports.shapes import readable_shapes
from gpuprof.reports.terminal import facts_table
from gpuprof.roofline.analysis import Analysis, RooflinePoint
from gpuprof.roofline.explain.figures import (
    Backend,
    Dispatch,
    ExplainedKernel,
    LaunchConfiguration,
    TimeSpread,
    WorkExplanation,
)

# Launches with a configuration of their own that are shown.
_MOST_LAUNCHES = 4
_MOST_KERNELS = 12
_LEVELS = {"op": "operator", "kernel": "kernel"}
# Figures that other parts of an explanation show better.
_SHOWN_ELSEWHERE = (
    "Name",
    "Name says",
    "Operator",
    "Phase",
    "Launch",
    "Shapes",
    "Calls",
    "Device time",
)


def render_explanation(explanation: WorkExplanation, console: Console) -> None:
    """Print what is known, one layer after the other."""
    console.print(Text(formatting.printable(title(explanation.point)), "bold"))
    for facts in explanation_facts(explanation):
        if not facts.facts:
            continue
        console.print()
        console.print(Text(facts.title, "bold"))
        console.print(facts_table(facts.facts))


def render_matches(
    analysis: Analysis, found: Sequence[RooflinePoint], console: Console, *, most: int
) -> None:
    """Print what a name may mean, numbered as `--pick` takes them, and how to choose."""
    steps = analysis.steps.profiled
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    for head in ("N", "ms", "Share", "Calls"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("What", overflow="fold")
    for number, point in enumerate(found[:most], 1):
        table.add_row(
            str(number),
            formatting.milliseconds(per_step(steps, point.device_ns)),
            formatting.percent(point.device_fraction),
            formatting.count(per_step(steps, point.calls)),
            Text(formatting.printable(f"{_LEVELS[point.level]} {title(point)}")),
        )
    console.print(Text(formatting.counted(len(found), "match", "matches")))
    console.print(table)
    if len(found) > most:
        console.print(Text(f"and {len(found) - most} more; a longer name leaves fewer"))
    console.print(Text("Choose one with --pick N."))


def title(point: RooflinePoint) -> str:
    """An operator with its shapes, or a kernel with its operator."""
    shapes = readable_shapes(*_shapes(point))
    name = formatting.short_name(point.name)
    launched = f"of {point.op}" if point.op and point.op != point.name else ""
    return formatting.joined((name, launched, point.phase, shapes))


def explanation_facts(explanation: WorkExplanation) -> Iterator[Facts]:
    """The layers, each with a title; layers of which nothing is known are left out."""
    point, steps = explanation.point, explanation.profiled_steps
    yield _facts("Where it comes from", _origin(explanation))
    if explanation.dispatch is not None:
        yield _facts("Which implementation ran", _dispatch(explanation.dispatch))
    # On a CPU an operator's own work has no other name than its own.
    kernels = [each for each in explanation.kernels if (each.kind, each.name) != ("op", point.name)]
    for kernel in kernels[:_MOST_KERNELS]:
        yield _facts(f"Kernel {formatting.short_name(kernel.name)}", _kernel(kernel, steps))
    rest = kernels[_MOST_KERNELS:]
    if rest:
        time = sum(kernel.time.total_ns for kernel in rest)
        more = Fact(
            formatting.counted(len(rest), "other kernel"),
            formatting.duration(per_step(steps, time)),
        )
        yield _facts("Further kernels", [more])
    yield _facts("Time on the device", _time(explanation))
    figures = point_figures(point, steps)
    work = [fact for fact in figures if fact.label not in _SHOWN_ELSEWHERE]
    yield _facts("Work and roof", work)
    if explanation.counters:
        yield _facts("Hardware counters", _counters(explanation))
    if explanation.unknown:
        unknown = [Fact(each.what, f"told by {each.told_by}") for each in explanation.unknown]
        yield _facts("Not known here", unknown)


def _facts(heading: str, facts: Iterable[Fact]) -> Facts:
    return Facts(tuple(facts), heading)


def _shapes(point: RooflinePoint) -> tuple[str, str]:
    if point.level == "kernel":
        return point.op_detail, point.op
    return point.detail, point.name


def _origin(explanation: WorkExplanation) -> Iterator[Fact]:
    point = explanation.point
    detail, operator = _shapes(point)
    if explanation.line:
        yield Fact("Line", explanation.line)
    if explanation.module:
        yield Fact("Module", explanation.module)
    if explanation.called_by:
        yield Fact("Operators", " > ".join(explanation.called_by))
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


def _time(explanation: WorkExplanation) -> Iterator[Fact]:
    point, steps = explanation.point, explanation.profiled_steps
    calls = per_step(steps, point.calls)
    basis = "a step" if steps else "in all"
    yield Fact("Calls", f"{formatting.count(calls)} {basis}")
    device_ns = formatting.duration(per_step(steps, point.device_ns))
    share = f"{formatting.percent(point.device_fraction)} of all device time"
    yield Fact("Device time", f"{device_ns} {basis}", share)
    if explanation.time is not None and explanation.time.number > 1:
        noun = ("call", "calls") if explanation.level == "op" else ("launch", "launches")
        yield Fact("Each", *_spread(explanation.time, 0, *noun))


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


def _counters(explanation: WorkExplanation) -> Iterator[Fact]:
    for each in explanation.counters:
        mean = f", mean of {each.launches} launches" if each.launches > 1 else ""
        yield Fact(each.name, _counter(each.value, each.unit), f"{each.metric}{mean}")
    if explanation.further_counters:
        others = formatting.counted(explanation.further_counters, "other counter")
        yield Fact("", f"{others} in the capture")


def _counter(value: float, unit: str) -> str:
    if unit == "%":
        return formatting.percent(value / 100)
    if unit in ("ns", "nsecond"):
        return formatting.duration(value)
    if unit in ("byte", "B"):
        return formatting.byte_count(value)
    return formatting.quantity(value, unit).strip()
