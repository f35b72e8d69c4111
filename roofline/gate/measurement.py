"""What one fresh process measured of one benchmark, from its capture."""

import hashlib
from collections import Counter as Tally
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.live.nvml.slowdowns import SLOWDOWN_REASONS, slowdown_reasons
from gpuprof.roofline.analysis import NEGLIGIBLE, Analysis, Utilization
from gpuprof.roofline.gate.held_clock import held_clock_mhz
from gpuprof.roofline.gate.series import TIME, Metric
from gpuprof.roofline.steps.device_state import working_times
from gpuprof.roofline.steps.waiting_for_a_core import TOLERATED_WAITING

# A power cap is how a power-limited GPU always runs under load, not an episode that passes.
_EPISODES = sum(bit for bit, name in SLOWDOWN_REASONS.items() if name != "software power cap")
# Shorter times are below what a host's clock and CUDA's events resolve, and a logarithm needs
# something.
_SHORTEST_NS = 1_000
_SYNCHRONISATION = r"Synchronize"


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """One benchmark as one process measured it. What could not be measured is not there."""

    # Of the steps that ran without a profiler.
    samples_ns: tuple[int, ...]
    # Indices of samples during which the device slowed itself down, or a CPU did other work;
    # and why.
    discarded: tuple[int, ...] = ()
    discard_reasons: tuple[str, ...] = ()
    # A hash of the names of the kernels that ran.
    signature: str = ""
    # One figure a process, by the name of a metric in `FIGURES`.
    figures: dict[str, float] = {}
    # Exact counts, by the name of a counter in `COUNTERS`; of kernels and calls those of one step.
    counters: dict[str, float] = {}
    # Launches by kernel name over the profiled steps.
    kernels: dict[str, int] = {}
    # The kind of the step's largest loss.
    bottleneck: str = ""
    sm_clock_mhz: int | None = None
    # Where somebody's setting held it; None where nothing shows that.
    held_sm_clock_mhz: int | None = None


@dataclass(frozen=True)
class Figure:
    """A metric of which a process has one figure, and where the analysis has it."""

    metric: Metric
    of: Callable[[Analysis], float | None]


def _certain(analysis: Analysis, of: Callable[[Utilization], float | None]) -> float | None:
    """A figure that counts everything: a lower bound falls where work moves out of sight."""
    use = analysis.utilization
    if use is None or use.basis != "timed" or analysis.coverage.without_flops > NEGLIGIBLE:
        return None
    return of(use)


def _gap(analysis: Analysis) -> float | None:
    """The time without device work in a step; of a GPU, without the profiler, which makes it."""
    split = analysis.split
    on_cpu = analysis.device is not None and analysis.device.kind == "cpu"
    if split is None or not (on_cpu or split.basis == "timed"):
        return None
    return max(split.idle_ns, _SHORTEST_NS)


def _certain_bandwidth(analysis: Analysis) -> float | None:
    """Bytes of the whole step over its time, as `_certain`."""
    without = 1 - (analysis.coverage.with_bytes or 0.0)
    return None if analysis.step is None or without > NEGLIGIBLE else analysis.step.bytes_per_s


FIGURES: dict[str, Figure] = {
    figure.metric.name: figure
    for figure in (
        Figure(
            Metric(name="kernel_time", unit="ns"),
            lambda a: None if a.step is None else a.step.device_ns / a.step.calls,
        ),
        Figure(
            Metric(name="mfu", unit="", better="higher"),
            lambda a: _certain(a, lambda u: u.mfu),
        ),
        Figure(
            Metric(name="hfu", unit="", better="higher"),
            lambda a: _certain(a, lambda u: u.hfu),
        ),
        Figure(
            Metric(name="mbu", unit="", better="higher"),
            lambda a: _certain(a, lambda u: u.mbu),
        ),
        Figure(
            Metric(name="bandwidth", unit="bytes/s", better="higher"),
            _certain_bandwidth,
        ),
        Figure(
            Metric(name="tokens_per_s", unit="tokens/s", better="higher"),
            lambda a: a.steps.tokens_per_s,
        ),
        Figure(
            Metric(name="launch_gap", unit="ns"),
            _gap,
        ),
        Figure(
            Metric(name="exposed_communication", unit="ns"),
            lambda a: None if a.exposed is None else max(a.exposed.communication_ns, _SHORTEST_NS),
        ),
        Figure(Metric(name="peak_memory", unit="bytes"), lambda a: a.peak_memory_bytes),
    )
}
COUNTERS: dict[str, str] = {
    "kernels": "",
    "launches": "",
    "synchronisations": "",
    "copied_bytes": "bytes",
    "graph_breaks": "",
    "peak_memory": "bytes",
}
# Every name that a budget may hold, with what it is called where it is another's.
TIMED_METRICS: dict[str, Metric] = {
    TIME.name: TIME,
    **{name: figure.metric for name, figure in FIGURES.items()},
}


_LENGTH_NS = pl.col("end_ns") - pl.col("start_ns")


def measurement(capture: Capture, analysis: Analysis) -> Measurement:
    """What the one-rank `capture` and its analysis say of the benchmark in it."""
    on_gpu = analysis.device is not None and analysis.device.kind != "cpu"
    discarded, reasons = _slowed(capture) if on_gpu else _preempted(capture)
    kernels = _profiled_kernels(capture)
    figures = {name: figure.of(analysis) for name, figure in FIGURES.items()}
    counters = _counters(capture, kernels)
    if analysis.steps.launches_per_step is not None:
        counters["launches"] = analysis.steps.launches_per_step
    if on_gpu and analysis.peak_memory_bytes is not None:
        # What torch's allocator held is exact; the memory of a process on a CPU is not.
        counters["peak_memory"] = analysis.peak_memory_bytes
        del figures["peak_memory"]
    names = Tally(kernels["name"].to_list())
    return Measurement(
        samples_ns=analysis.steps.samples_ns if analysis.steps.timed else (),
        discarded=discarded,
        discard_reasons=reasons,
        signature=_hash(names.keys()),
        figures={name: float(value) for name, value in figures.items() if value is not None},
        counters=counters,
        kernels=dict(names),
        bottleneck=analysis.bottleneck.kind,
        sm_clock_mhz=None
        if not analysis.device_state
        else analysis.device_state.sm_clock_mhz_median,
        held_sm_clock_mhz=held_clock_mhz(analysis) if on_gpu else None,
    )


def _hash(names: object) -> str:
    text = "\n".join(sorted(map(str, names)))  # type: ignore[call-overload]
    return hashlib.sha256(text.encode()).hexdigest()[:12] if text else ""


def _slowed(capture: Capture) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Indices of the timed steps in which the device was throttled, and the reasons."""
    timed = capture.steps.filter(pl.col("phase") == "timed").sort("start_ns")
    samples = capture.samples.filter(pl.col("throttle_reasons").is_not_null()).sort("time_ns")
    if timed.is_empty() or samples.is_empty():
        return (), ()
    slowed, seen = [], 0
    times, bits = samples["time_ns"].to_numpy(), samples["throttle_reasons"].to_numpy()
    for index, (start_ns, end_ns) in enumerate(working_times(timed)):
        # A step between two samples has the state of the one before it.
        first = max(int(times.searchsorted(start_ns, side="right")) - 1, 0)
        last = int(times.searchsorted(end_ns, side="right"))
        during = 0
        for reasons in bits[first : max(last, first + 1)]:
            during |= int(reasons) & _EPISODES
        if during:
            slowed.append(index)
            seen |= during
    return tuple(slowed), slowdown_reasons(seen)


def _preempted(capture: Capture) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Indices of the timed steps of a CPU during which others had its core, and the reason."""
    timed = capture.steps.filter(pl.col("phase") == "timed").sort("start_ns")
    waited = timed["run_delay_ns"].fill_null(0) > timed["host_ns"] * TOLERATED_WAITING
    indices = tuple(int(index) for index in waited.arg_true())
    return indices, (("other programs had the core",) if indices else ())


def _profiled_kernels(capture: Capture) -> pl.DataFrame:
    """Every piece of work of the profiled steps that the program's calls decide, not their times.

    On a CPU what an operator does beside the operators that it calls is work where it takes long
    (`cpu_own_work`). On a busy machine that is so for any of them now and then: a count of them, or
    their names, would say that the program changed.
    """
    kernels = capture.kernels
    if (capture.steps["phase"] == "profiled").any():
        kernels = kernels.filter(pl.col("step").is_not_null())
    if "op" not in kernels["kind"]:
        return kernels
    times = capture.ops.select("process", "op_id", operator_ns=_LENGTH_NS)
    beside_others = (pl.col("kind") == "op") & (_LENGTH_NS < pl.col("operator_ns"))
    return (
        kernels.join(times, on=["process", "op_id"], how="left", maintain_order="left")
        .filter(~beside_others.fill_null(value=False))
        .drop("operator_ns")
    )


def _counters(capture: Capture, kernels: pl.DataFrame) -> dict[str, float]:
    """Counts of one profiled step; where none was recorded, of the whole capture."""
    launches = capture.launches
    profiled = capture.steps.filter(pl.col("phase") == "profiled")
    if profiled.height:
        within = pl.col("start_ns").is_between(
            profiled["start_ns"].min(), profiled["end_ns"].max(), closed="left"
        )
        launches = launches.filter(within)
    totals: dict[str, int] = {}
    # Without a recorded step and without kernels nothing looked for them.
    if profiled.height or kernels.height:
        totals["kernels"] = kernels.filter(~pl.col("kind").is_in(["memcpy", "memset"])).height
    if not launches.is_empty():
        totals["synchronisations"] = launches.filter(
            pl.col("name").str.contains(_SYNCHRONISATION)
        ).height
        copied = kernels.filter(pl.col("kind") == "memcpy")["bytes"]
        if not copied.has_nulls():
            totals["copied_bytes"] = int(copied.sum())
    counters: dict[str, float] = {
        name: total / max(profiled.height, 1) for name, total in totals.items()
    }
    graph_breaks = capture.processes[0].graph_breaks
    if graph_breaks is not None:
        counters["graph_breaks"] = graph_breaks
    return counters
