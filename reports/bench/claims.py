"""What became of a table of claims, on the terminal: the verdict and the arithmetic of each."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from gpuprof.reports import formatting
from gpuprof.roofline.bench.results import BenchReport
from gpuprof.roofline.claims.floor import Floor
from gpuprof.roofline.claims.judge import DISAGREEMENT, ClaimJudgement, Conflict
from gpuprof.roofline.claims.measured import is_of_claimed_gpu
from gpuprof.roofline.claims.work import ClaimedWork
from gpuprof.roofline.machine.devices import rows_with_words

_STYLES = {
    "possible": "green",
    "only with in-network reduction": "yellow",
    "beyond the hardware": "red",
    "contradicts another claim": "magenta",
    "not checkable": "dim",
}
_SHORT_NS = 10_000


def print_claims(
    source: str,
    judgements: Sequence[ClaimJudgement],
    console: Console,
    *,
    measured: BenchReport | None = None,
) -> None:
    """Print each claim with its verdict and arithmetic, then how many there are of each.

    `measured` is the bench that the claims were compared with; that it has none of them is said.
    """
    console.print(Text(f"Claims of {formatting.printable(source)}", style="bold"))
    for one in judgements:
        head = Text.assemble(
            formatting.printable(one.claim.name),
            f" ({formatting.printable(one.claim.gpu) or 'GPU not stated'}): ",
            (one.verdict, _STYLES[one.verdict]),
        )
        console.print(head)
        for line in explain(one):
            console.print(Padding(Text(line), (0, 0, 0, 2)))
    counts = (
        f"{sum(one.verdict == verdict for one in judgements)} {verdict}" for verdict in _STYLES
    )
    number = formatting.counted(len(judgements), "claim")
    console.print(Text(f"{number}: {', '.join(counts)}.", style="bold"))
    console.print(
        Text("Possible only says that arithmetic does not rule it out. Roofs are the datasheet's.")
    )
    if measured is not None and not any(one.measured for one in judgements):
        console.print(Text(_nothing_measured(judgements, measured), style="yellow"))


def _nothing_measured(judgements: Sequence[ClaimJudgement], measured: BenchReport) -> str:
    """Why no claim has a measured time beside it."""
    if measured.device is None:
        return "Nothing measured matches a claim: the bench does not name its device."
    device = formatting.printable(measured.device.name)
    if any(is_of_claimed_gpu(measured, one.claim) for one in judgements):
        return f"Nothing measured matches a claim: no claim is of a size that ran on {device}."
    return f"Nothing measured matches a claim: it was measured on {device}, which none is about."


def explain(one: ClaimJudgement) -> Iterator[str]:
    """The arithmetic behind a judgement, a line each."""
    if one.reason:
        yield formatting.printable(one.reason)
    if one.floor is not None and one.work is not None and one.claimed_ns:
        yield _floor_line(one, one.floor, one.work, one.claimed_ns)
        if one.claimed_ns < _SHORT_NS:
            yield "so short that calls must be queued ahead: a launch alone takes the host a few µs"
    if one.verdict == "only with in-network reduction" and one.floor is not None:
        limit = formatting.byte_rate(one.floor.rate)
        yield (
            f"sends alone end at a bus bandwidth of {limit}; where the switch adds, each rank "
            "sends its message only once"
        )
    for conflict in one.conflicts:
        yield _conflict_line(one, conflict)
    if one.floor is None and one.claim.stated_time:
        line = f"claimed {one.claim.stated_time}"
        if one.ratio is not None:
            other = formatting.printable(one.claim.of)
            line += f", {formatting.significant(one.ratio)} times {other}'s time"
        yield line
    if one.measured is not None:
        yield _measured_line(one)


def _floor_line(one: ClaimJudgement, floor: Floor, work: ClaimedWork, claimed_ns: float) -> str:
    """ "2 x 2048 x 11008 x 4096 = 185 GFLOP; at 989 TFLOP/s, ...: at least 187 µs; claimed ..."."""
    amounts = {"compute": work.flop_count, "memory": work.bytes_moved, "link": work.bus_bytes}
    amount = amounts[floor.resource]
    unit = "FLOP" if floor.resource == "compute" else "B"
    total = formatting.quantity(amount, unit)
    roof = formatting.quantity(floor.rate, f"{unit}/s")
    reached = formatting.quantity(amount / claimed_ns * 1e9, f"{unit}/s")
    which = ""
    if not one.claim.gpu:
        which = ", fastest GPU of the device table"
    elif len(rows_with_words(one.claim.gpu)) > 1:
        which = ", fastest variant"
    share = formatting.percent(floor.ns / claimed_ns)
    return (
        f"{formatting.printable(work.sum)} = {total}; at {roof}, "
        f"{floor.ceiling}{which}: at least {formatting.duration(floor.ns)}; claimed "
        f"{_claimed_time(one, claimed_ns)}, which is {reached}, "
        f"{share} of the roof"
    )


def _claimed_time(one: ClaimJudgement, claimed_ns: float) -> str:
    """The time as the claim states it, or as its rate makes it."""
    return one.claim.stated_time or formatting.duration(claimed_ns)


def _conflict_line(one: ClaimJudgement, conflict: Conflict) -> str:
    if conflict.quantity == "time":
        claimed = _claimed_time(one, conflict.claimed)
        implied = formatting.duration(conflict.implied)
    elif conflict.quantity == "tokens/s":
        claimed = f"{one.claim.tokens_per_s:.15g} tokens/s"
        implied = formatting.quantity(conflict.implied, "tokens/s")
    else:
        claimed = f"{one.claim.mfu_percent:.15g}% MFU"
        implied = formatting.percent(conflict.implied)
    low, high = sorted((conflict.claimed, conflict.implied))
    apart = high / low
    how = "they agree"
    if apart > 1 + DISAGREEMENT:
        how = f"a factor of {formatting.significant(apart)}"
    return f"claimed {claimed}; by {formatting.printable(conflict.other)} it is {implied}: {how}"


def _measured_line(one: ClaimJudgement) -> str:
    assert one.measured is not None
    time = formatting.duration(one.measured.time_ns, digits=4)
    line = f"measured: {time} by {one.measured.version}"
    if one.claimed_ns:
        line += f", {formatting.significant(one.measured.time_ns / one.claimed_ns)} times the claim"
    return line
