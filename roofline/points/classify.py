"""The class of a piece of work: what holds it back most, from all of its launches.

Each reason has a share of the time that it explains. Below half its roof the reason that explains
more than half of the loss is the class; from half the roof on, the work's resource explains the
larger part of its time, and only a grid or a clock that explains most of the rest of compute-bound
work goes before it. Where no reason explains the loss it is the resource.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

from gpuprof.roofline.analysis import Bottleneck
from gpuprof.roofline.classes import (
    CACHE,
    CLOCK,
    COMPUTE,
    FEW_BLOCKS,
    MEMORY,
    NO_TENSOR,
    SMALL,
    TAIL,
    UNKNOWN,
    ClassName,
)
from gpuprof.roofline.durations import microseconds
from gpuprof.roofline.machine.roof_time import RoofTime
from gpuprof.roofline.points.grid import Grid

# What has a verdict of its own: index of the operator signature or None, phase, and the name of a
# copy or collective without an operator, else "".
WorkKey: TypeAlias = tuple[int | None, str, str]

_NEAR_ROOF: Final = 0.5
# What a device needs to start and drain a launch. GPU: an empty kernel takes about 2 us on an H100;
# CPU: dispatch of an operator takes a few us.
_SHORTEST_LAUNCH_NS: Final = {"cuda": 2_000, "hip": 2_000, "cpu": 5_000}
# Near the roof a grid or a clock that costs less is said, and is no class.
_SMALLEST_SHARE: Final = 0.1
# A grid that would explain more than all of the loss does not have blocks of equal work.
_TOLERANCE: Final = 0.02
# A power cap slows every dense product: it is the class of those that lose little else.
_CLOCK_EXPLAINS: Final = 2 / 3
# Above this the loss to a grid or a clock is said beside another class.
_WORTH_SAYING: Final = 0.05


@dataclass(frozen=True)
class SmClock:
    """The clock that the work ran at, and why it was lowered, in NVML's words."""

    mhz: int
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class TensorPath:
    """Tensor cores that could do a product and did not: what says so, and the roof there."""

    sentence: str
    roof_ns: float


@dataclass(frozen=True)
class Circumstances:
    """What else is known of `calls` calls beside their time at the roof; None where it is not."""

    calls: int
    device_ns: int
    # Pieces of device work that the calls launched, None where there is one for each.
    launches: int | None = None
    device_kind: str = "cuda"
    grid: Grid | None = None
    # Of all calls together, and what the L2 cache holds.
    bytes_moved: int | None = None
    l2_bytes: int | None = None
    clock: SmClock | None = None
    tensor_path: TensorPath | None = None


@dataclass(frozen=True)
class WorkVerdict:
    """The class of all work of one kind, for each row that shows some of it."""

    kind: ClassName
    # What the class rests on beside the share of the roof, "" where that says all. Of unknown work:
    # why it is.
    reason: str
    # Of the time that the work takes: what is gained where the reason is gone.
    gain_fraction: float | None
    # Of that time, what is above the roof.
    lost_fraction: float = 0.0
    # What explains that a row of it is faster than its roof.
    over_roof: str = ""

    def bottleneck(
        self, times: RoofTime, *, calls: int, device_ns: int, steps: int, note: str = ""
    ) -> Bottleneck:
        """The verdict on a row that took `device_ns` in `calls` calls, of the profiled `steps`.

        `note` says what the row is where it has no roof of its own: all of its time is lost then.
        Of the gain of all the work a row has the share that it has of the loss.
        """
        if self.gain_fraction is None:
            return Bottleneck(self.kind, note or self.reason, None)
        binding = times.binding
        lost_ns = max(0.0, device_ns - (0.0 if binding is None else binding.ns))
        gain_ns = lost_ns * self.gain_fraction / self.lost_fraction if self.lost_fraction else 0.0
        if binding is None or device_ns <= 0:
            return Bottleneck(self.kind, note, round(gain_ns / steps))
        parts = [_of_roof(binding.ns / device_ns, binding.ceiling.label, self.over_roof)]
        if self.kind == SMALL:
            least, taken = microseconds(binding.ns / calls), microseconds(device_ns / calls)
            parts = [f"{least} of work at the roof takes {taken} a call"]
        parts += [part for part in (self.reason, note) if part]
        return Bottleneck(self.kind, "; ".join(parts), round(gain_ns / steps))


def classify(times: RoofTime, known: Circumstances, reason_unknown: str) -> WorkVerdict:
    """The class of work that takes `times` at the roof in all."""
    binding = times.binding
    if binding is None or known.device_ns <= 0:
        return WorkVerdict(UNKNOWN, reason_unknown, None)
    fraction = binding.ns / known.device_ns
    over_class, over_roof = _over_roof(times, known)
    if fraction > 1:
        return WorkVerdict(over_class, "", 0.0, 0.0, over_roof)
    lost = 1 - fraction
    resource = COMPUTE if binding is times.compute else MEMORY
    found = _explanation(times, known, lost, resource)
    if found is not None:
        kind, reason, gain = found
        return WorkVerdict(kind, reason, gain, lost, over_roof)
    # Of traffic neither is certain: some of the multiprocessors can saturate DRAM.
    beside = _beside(times, known) if resource == COMPUTE else ""
    return WorkVerdict(resource, beside, lost, lost, over_roof)


def _explanation(
    times: RoofTime, known: Circumstances, lost: float, resource: ClassName
) -> tuple[ClassName, str, float] | None:
    """A class other than the resource, its reason and the share of the time that it costs."""
    assert times.binding is not None
    shortest_ns = _SHORTEST_LAUNCH_NS.get(known.device_kind, _SHORTEST_LAUNCH_NS["cuda"])
    all_shortest_ns = shortest_ns * (known.launches or known.calls)
    near = lost <= 1 - _NEAR_ROOF
    grid, share = known.grid, _grid_share(known, all_shortest_ns)
    explains = lost / 2 < share <= lost + _TOLERANCE
    if grid is not None and explains and (not near or _counts(share, resource)):
        return (FEW_BLOCKS if grid.underfilled else TAIL), grid.sentence, min(share, lost)
    small = times.binding.ns / known.calls < shortest_ns
    if not near and small and all_shortest_ns / known.device_ns > lost / 2:
        return SMALL, "" if grid is None or not grid.underfilled else grid.sentence, lost
    path = known.tensor_path
    if path is not None and resource == COMPUTE:
        # At the same share of the roof there.
        gain = lost if path.roof_ns >= times.binding.ns else 1 - path.roof_ns / times.binding.ns
        return NO_TENSOR, path.sentence, gain
    slowed = _clock_share(times, known.clock)
    if resource == COMPUTE and slowed > lost * _CLOCK_EXPLAINS and _counts(slowed, resource):
        return CLOCK, _clock_sentence(times, known.clock), min(slowed, lost)
    return None


def _counts(share: float, resource: ClassName) -> bool:
    return resource == COMPUTE and share >= _SMALLEST_SHARE


def _grid_share(known: Circumstances, shortest_ns: int) -> float:
    """What of the time a full grid would save: the launches take `shortest_ns` at least."""
    if known.grid is None:
        return 0.0
    filled_ns = max(known.device_ns * (1 - known.grid.idle_fraction), shortest_ns)
    return max(0.0, 1 - filled_ns / known.device_ns)


def _clock_share(times: RoofTime, clock: SmClock | None) -> float:
    """What of the time the roof's clock would save."""
    assumed = times.binding.ceiling.clock_mhz if times.binding is not None else None
    if clock is None or not clock.reasons or not assumed:
        return 0.0
    return max(0.0, 1 - clock.mhz / assumed)


def _clock_sentence(times: RoofTime, clock: SmClock | None) -> str:
    assert clock is not None
    assert times.binding is not None
    assumed = times.binding.ceiling.clock_mhz
    return f"{clock.mhz} MHz where the roof assumes {assumed}: {', '.join(clock.reasons)}"


def _beside(times: RoofTime, known: Circumstances) -> str:
    """What else costs compute-bound work time, and how much of it."""
    parts = []
    if known.grid is not None and known.grid.idle_fraction >= _WORTH_SAYING:
        parts.append(f"the grid loses {known.grid.idle_fraction:.0%}: {known.grid.sentence}")
    slowed = _clock_share(times, known.clock)
    if slowed >= _WORTH_SAYING:
        parts.append(f"the clock loses {slowed:.0%}: {_clock_sentence(times, known.clock)}")
    return "; ".join(parts)


def _over_roof(times: RoofTime, known: Circumstances) -> tuple[ClassName, str]:
    """The class of work that is faster than its roof, and what explains that."""
    if times.binding is times.compute:
        return COMPUTE, "peak or count wrong"
    if known.l2_bytes is None or known.bytes_moved is None:
        return MEMORY, "peak or count wrong, or the data stays in a cache"
    data, cache = known.bytes_moved / known.calls, known.l2_bytes
    sizes = f"{data / 2**20:.3g} MiB a call, an L2 of {cache / 2**20:.3g} MiB"
    if data <= cache:
        return CACHE, f"the data stays in L2 ({sizes})"
    assert times.memory is not None
    # A call finds at most a full L2 of its input there and leaves at most a full one of its output.
    least_ns = times.memory.ns * max(0.0, 1 - 2 * cache / data)
    if least_ns <= known.device_ns:
        return CACHE, f"part of the data stays in L2 ({sizes})"
    return MEMORY, f"peak or count wrong: more than L2 explains ({sizes})"


def _of_roof(fraction: float, label: str, over_roof: str) -> str:
    sentence = f"{fraction:.1%} of {label}"
    return f"{sentence}: {over_roof}" if fraction > 1 else sentence
