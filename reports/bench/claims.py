"""What became of a table of claims, on the terminal: the verdict and the arithmetic of each."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from gpuprof.reports import formatting
from gpuprof.roofline.claims.judge import Conflict, Judgement
from gpuprof.roofline.cost_models.cost import Flops
from gpuprof.roofline.machine.devices import rows_with_words

_STYLES = {
    "possible": "green",
    "only with in-network reduction": "yellow",
    "beyond the hardware": "red",
    "contradicts another claim": "magenta",
    "not checkable": "dim",
}
_SHORT_NS = 10_000


def print_claims(source: str, judgements: Sequence[Judgement], console: Console) -> None:
    """Print each claim with its verdict and arithmetic, then how many there are of each."""
    console.print(Text(f"Claims of {formatting.printable(source)}", style="bold"))
    for one in judgements:
        head = Text.assemble(
            f"{formatting.printable(one.claim.name)} ({formatting.printable(one.claim.gpu)}): ",
            (one.verdict, _STYLES[one.verdict]),
        )
        console.print(head)
        for line in explain(one):
            console.print(Padding(Text(line), (0, 0, 0, 2)))
    counts = (
        f"{sum(one.verdict == verdict for one in judgements)} {verdict}" for verdict in _STYLES
    )
    console.print(Text(f"{len(judgements)} claims: {', '.join(counts)}.", style="bold"))
    console.print(
        Text("Possible only says that arithmetic does not rule it out. Roofs are the datasheet's.")
    )


def explain(one: Judgement) -> Iterator[str]:
    """The arithmetic behind a judgement, a line each."""
    if one.reason:
        yield formatting.printable(one.reason)
    if one.floor is not None and one.work is not None and one.claimed_ns:
        yield _floor_line(one)
        if one.claimed_ns < _SHORT_NS:
            yield "so short that calls must be queued ahead: a launch alone takes the host a few µs"
    if one.verdict == "only with in-network reduction" and one.floor is not None:
        limit = formatting.byte_rate(one.floor.rate)
        yield (
            f"sends alone end at a bus bandwidth of {limit}; where the switch adds, each rank "
            "sends its message only once"
        )
    for conflict in one.conflicts:
        yield _conflict_line(conflict)
    if one.ratio is not None:
        yield f"{formatting.significant(one.ratio)} times {one.claim.of}'s time"
    if one.measured is not None:
        yield _measured_line(one)


def _floor_line(one: Judgement) -> str:
    """ "2 x 2048 x 11008 x 4096 = 185 GFLOP; at 989 TFLOP/s, ...: at least 187 µs; claimed ..."."""
    floor, work = one.floor, one.work
    assert floor is not None
    assert work is not None
    assert one.claimed_ns
    if work.bus_bytes:
        amount, rate = formatting.byte_count(work.bus_bytes), formatting.byte_rate(floor.rate)
        reached = formatting.byte_rate(work.bus_bytes / one.claimed_ns * 1e9)
    elif floor.ceiling.startswith("DRAM"):
        amount, rate = formatting.byte_count(work.bytes_moved), formatting.byte_rate(floor.rate)
        reached = formatting.byte_rate(work.bytes_moved / one.claimed_ns * 1e9)
    else:
        amount, rate = _flops(work.flops), formatting.flops_rate(floor.rate)
        reached = formatting.flops_rate(work.flop_count / one.claimed_ns * 1e9)
    share = formatting.percent(floor.ns / one.claimed_ns)
    which = ", fastest variant" if len(rows_with_words(one.claim.gpu)) > 1 else ""
    return (
        f"{work.sum} = {amount}; at {rate}, {floor.ceiling}{which}: "
        f"at least {formatting.duration(floor.ns)}; claimed {formatting.duration(one.claimed_ns)}, "
        f"which is {reached}, {share} of the roof"
    )


def _flops(parts: tuple[Flops, ...]) -> str:
    return formatting.flops(sum(part.count for part in parts))


def _conflict_line(conflict: Conflict) -> str:
    words = {
        "time": formatting.duration,
        "tokens/s": lambda value: formatting.quantity(value, "tokens/s"),
        "MFU": formatting.percent,
    }
    figure = words[conflict.quantity]
    low, high = sorted((conflict.claimed, conflict.implied))
    apart = high / low
    how = f"a factor of {formatting.significant(apart)}" if apart > 1.05 else "they agree"
    claimed, implied = figure(conflict.claimed), figure(conflict.implied)
    return f"claimed {claimed}; by {formatting.printable(conflict.other)} it is {implied}: {how}"


def _measured_line(one: Judgement) -> str:
    assert one.measured is not None
    time = formatting.duration(one.measured.time_ns, digits=4)
    line = f"measured: {time} by {one.measured.version}"
    if one.claimed_ns:
        line += f", {formatting.significant(one.measured.time_ns / one.claimed_ns)} times the claim"
    return line
