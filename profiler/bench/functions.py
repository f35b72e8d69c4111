"""Times functions of a user by size, with the discipline of `gpuprof bench`."""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec
import polars as pl
import torch

from gpuprof._version import __version__
from gpuprof.collectors import schema
from gpuprof.collectors.errors import CommandError, reason
from gpuprof.collectors.live import cuda
from gpuprof.collectors.live.collection import LiveCollection
from gpuprof.collectors.live.collector import Scope
from gpuprof.profiler.bench.derived_cost import BenchMachine, cost_by_operators
from gpuprof.profiler.bench.device import clock_of, fingerprint_with, torch_device
from gpuprof.profiler.machine.calibration_cache import load_cached
from gpuprof.profiler.run.ranks import Ranks
from gpuprof.reference_kernels.benching.in_turns import time_in_turns
from gpuprof.reference_kernels.benching.statistics import CONFIDENCE, median_of
from gpuprof.reference_kernels.benching.timing import PRECISION, Clock, Timing
from gpuprof.reference_kernels.suite import Prepared
from gpuprof.reports.console.progress import showing_parts
from gpuprof.roofline.bench.results import Method
from gpuprof.roofline.bench.sizes import CallCost, SizedTime, SizesReport
from gpuprof.roofline.steps.device_state import summarize_samples

Size: TypeAlias = Any
Inputs: TypeAlias = Callable[[Size], Any]
CallAmount: TypeAlias = Callable[[Size], int]
_SAMPLE_INTERVAL_NS: Final = 20_000_000


@dataclass(frozen=True)
class FunctionsBySize:
    """What is timed: functions by name, at these sizes."""

    title: str
    functions: Mapping[str, Callable[..., object]]
    sizes: Sequence[Size]
    # The arguments at a size: a tuple of them, or the only one. Without it that is the size.
    inputs: Inputs | None = None
    # What one call costs at a size, where the user knows it.
    flops: CallAmount | None = None
    bytes_moved: CallAmount | None = None


@dataclass(frozen=True)
class Conditions:
    """How it is timed."""

    device: str | None = None
    # The longest time to spend on one function at one size.
    budget_s: float = 1.0
    seed: int = 0


def time_functions(
    subject: FunctionsBySize, conditions: Conditions, *, keep_if_interrupted: bool = False
) -> SizesReport:
    """Time each function of `subject` at each size; functions take turns at a size.

    A function that raises has no time there, and the others go on. With `keep_if_interrupted`
    Ctrl-C ends the benchmark after the sizes that are done. Raises `CommandError` without functions
    or sizes, and for a device that is not there.
    """
    if not subject.functions:
        raise CommandError(f"{subject.title}: no function to time", exit_code=2)
    if not subject.sizes:
        raise CommandError(f"{subject.title}: no sizes to time at", exit_code=2)
    labels = list(map(_label, subject.sizes))
    if twice := next((label for label in labels if labels.count(label) > 1), ""):
        raise CommandError(f"{subject.title}: the size {twice} is there twice", exit_code=2)
    # Kineto would tell of each start and stop of a profiler.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    device = torch_device(conditions.device, Ranks.of_torchrun())
    fingerprint, position = fingerprint_with(device)
    described = fingerprint.devices[position]
    clock = clock_of(described)
    calibration = load_cached(described, str(torch.__version__), torch.get_num_threads())
    machine = BenchMachine(fingerprint, position, calibration)
    created_ns = time.time_ns()
    collection = LiveCollection(Scope([described.index], interval_ns=_SAMPLE_INTERVAL_NS))
    collection.start()
    times: list[SizedTime] = []
    spans: list[tuple[int, int]] = []
    interrupted: tuple[str, ...] = ()
    with showing_parts() as show:
        for number, size in enumerate(subject.sizes):
            show(f"{subject.title} {_label(size)}", number, len(subject.sizes))
            begun_ns = time.time_ns()
            try:
                at_size = _AtSize(subject, size, clock, device, conditions, machine).times()
            except KeyboardInterrupt:
                if not (keep_if_interrupted and times):
                    raise
                interrupted = (
                    f"interrupted: {_label(size)} and the sizes after it were not timed",
                )
                break
            times += at_size
            spans += [(begun_ns, time.time_ns())] * len(at_size)
            if device.type == "cuda":
                torch.cuda.empty_cache()
    samples = collection.stop_into_tables().get("samples", schema.empty("samples"))
    return SizesReport(
        tool_version=__version__,
        created_ns=created_ns,
        title=subject.title,
        device=described,
        fingerprint=fingerprint,
        method=Method(
            clock=clock.name,
            flushed_bytes=clock.flushed_bytes,
            confidence=CONFIDENCE,
            precision=PRECISION,
            budget_s=conditions.budget_s,
            seed=conditions.seed,
        ),
        functions=tuple(subject.functions),
        times=tuple(
            _with_clock(one, samples, described.index, span)
            for one, span in zip(times, spans, strict=True)
        ),
        warnings=(
            *interrupted,
            *(note.sentence for note in collection.notes(gpu_in_use=device.type == "cuda")),
        ),
    )


class _AtSize:
    """All functions at one size."""

    def __init__(
        self,
        subject: FunctionsBySize,
        size: Size,
        clock: Clock,
        device: torch.device,
        conditions: Conditions,
        machine: BenchMachine,
    ) -> None:
        self._machine = machine
        self._subject = subject
        self._size = size
        self._clock = clock
        self._device = device
        self._conditions = conditions

    def times(self) -> list[SizedTime]:
        """One for each function, in their order."""
        arguments, problem = self._arguments()
        ready: dict[str, Prepared] = {}
        failed: dict[str, str] = {}
        for name, function in self._subject.functions.items():
            if problem:
                failed[name] = problem
                continue
            call = _Call(function, arguments)
            # It compiles, allocates and fails here, and not in another's turn.
            what = _error_of(call)
            if what:
                failed[name] = what
            else:
                ready[name] = Prepared(call, ())
        timings, problem = self._timed(tuple(ready.values()))
        timed = dict(zip(ready, timings, strict=False))
        return [
            self._result(name, ready[name], timed[name])
            if name in timed
            else self._failure(name, failed.get(name, problem))
            for name in self._subject.functions
        ]

    def _arguments(self) -> tuple[tuple[Any, ...], str]:
        """The arguments of each call, and why there are none."""
        if self._subject.inputs is None:
            return (self._size,), ""
        torch.manual_seed(self._conditions.seed)
        try:
            # Tensors that name no device are made there.
            with self._device:
                made = self._subject.inputs(self._size)
        except Exception as error:
            return (), f"inputs: {_described(error)}"
        return (tuple(made) if isinstance(made, tuple | list) else (made,)), ""

    def _timed(self, calls: Sequence[Prepared]) -> tuple[list[Timing], str]:
        """The timings, and why there are none."""
        try:
            return time_in_turns(calls, self._clock, budget_s=self._conditions.budget_s), ""
        # One that fails only now: its device is in no state to go on.
        except Exception as error:
            return [], _described(error)

    def _result(self, name: str, prepared: Prepared, timing: Timing) -> SizedTime:
        median = timing.median
        hosts = [one.host_ns for one in timing.samples if one.host_ns is not None]
        return SizedTime(
            function=name,
            size=_label(self._size),
            number=_number(self._size),
            median_ns=median.value,
            lower_ns=median.lower,
            upper_ns=median.upper,
            relative_spread=median.relative_spread,
            precise=timing.precise,
            samples_ns=timing.times_ns,
            host_median_ns=median_of(hosts).value if hosts else None,
            head_start_ns=timing.head_start_ns,
            cost=self._cost(prepared),
        )

    def _failure(self, name: str, problem: str) -> SizedTime:
        label, number = _label(self._size), _number(self._size)
        return SizedTime(function=name, size=label, number=number, error=problem)

    def _cost(self, prepared: Prepared) -> CallCost:
        """What the user says a call costs, and what its operators' models say of the rest."""
        flops = None if self._subject.flops is None else int(self._subject.flops(self._size))
        moved = self._subject.bytes_moved
        given = CallCost(
            flops=flops,
            flops_from=None if flops is None else "given",
            bytes_moved=None if moved is None else int(moved(self._size)),
            bytes_from=None if moved is None else "given",
        )
        if None not in (given.flops, given.bytes_moved):
            return given
        try:
            counted = cost_by_operators(prepared, self._clock.flush, self._machine)
        # A profile is more than the call: its time stands without one.
        except Exception as error:
            return msgspec.structs.replace(given, reason=_described(error))
        known = {
            field: value
            for field, value in msgspec.structs.asdict(given).items()
            if value is not None and field != "reason"
        }
        return msgspec.structs.replace(counted, **known)


@dataclass(frozen=True)
class _Call:
    function: Callable[..., object]
    arguments: tuple[Any, ...]

    def __call__(self) -> object:
        return self.function(*self.arguments)


def _error_of(call: _Call) -> str:
    """Why `call` cannot be timed; "" where it can."""
    try:
        call()
        if cuda.in_use():
            cuda.synchronize()
    except Exception as error:
        return _described(error)
    return ""


def _with_clock(
    one: SizedTime, samples: pl.DataFrame, device: int, span: tuple[int, int]
) -> SizedTime:
    """`one` with the clock and the slow-downs that NVML saw in its span of time."""
    during = samples.filter(pl.col("time_ns").is_between(*span), pl.col("device") == device)
    state = summarize_samples(during)
    if state is None:
        return one
    return msgspec.structs.replace(
        one, sm_clock_mhz=state.sm_clock_mhz_median, throttle_reasons=state.throttle_reasons or ()
    )


def _label(size: Size) -> str:
    """ "4096", "512x64" for (512, 64)."""
    if isinstance(size, Iterable) and not isinstance(size, str):
        return "x".join(map(str, size))
    return str(size)


def _number(size: Size) -> float | None:
    """Where the size lies on an axis; None for one that has no number."""
    if isinstance(size, bool) or not isinstance(size, int | float):
        return None
    return float(size)


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {reason(error)}"
