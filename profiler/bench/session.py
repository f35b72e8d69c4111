"""One `gpuprof bench`: runs the plans, watches the device meanwhile, and stores what it found."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import msgspec
import polars as pl
import torch
import torch.distributed as dist

from gpuprof._version import __version__
from gpuprof.collectors import schema, storage
from gpuprof.collectors.errors import CommandError
from gpuprof.collectors.held_cupti import held_sentence
from gpuprof.collectors.live.collection import LiveCollection
from gpuprof.collectors.live.collector import Scope
from gpuprof.collectors.live.torch_trace import cupti_held_by
from gpuprof.collectors.manifest import Calibration
from gpuprof.collectors.plugins import PluginUse
from gpuprof.profiler.bench.capture import ProfiledCase, make_capture, profile_case
from gpuprof.profiler.bench.device import clock_of, fingerprint_with, torch_device
from gpuprof.profiler.captures import store
from gpuprof.profiler.machine import calibration_cache
from gpuprof.profiler.run.output import CaptureOutput
from gpuprof.profiler.run.parts import Parts
from gpuprof.profiler.run.ranks import Ranks
from gpuprof.reference_kernels.benching.coordination import Alone, Coordination, Group
from gpuprof.reference_kernels.benching.library_warnings import collecting_warnings
from gpuprof.reference_kernels.benching.run import BenchOptions, BenchPlan, make_plans, run_plan
from gpuprof.reference_kernels.benching.statistics import CONFIDENCE
from gpuprof.reference_kernels.benching.timing import PRECISION
from gpuprof.reference_kernels.families import Family, UnknownNameError, select
from gpuprof.reference_kernels.suite import DeviceType, Prepared, Version
from gpuprof.reports.console.progress import PartProgress, showing_parts
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.bench.results import (
    BENCH_FILE,
    BenchReport,
    CaseResult,
    Method,
    Skipped,
    Sustained,
)
from gpuprof.roofline.steps.device_state import summarize_samples

TimedT = TypeVar("TimedT", CaseResult, Sustained)

_SAMPLE_INTERVAL_NS = 20_000_000
_NEEDS_GROUP = "needs several processes: torchrun --nproc-per-node N -m gpuprof bench {}"


@dataclass(frozen=True)
class Request:
    """What the command line asked for."""

    wanted: tuple[str, ...]
    sizes: tuple[str, ...]
    dtypes: tuple[str, ...]
    device: str | None
    budget_s: float
    seed: int
    check_only: bool
    # None: store no capture.
    output: CaptureOutput | None
    command: tuple[str, ...]


def run_bench(request: Request) -> BenchReport | None:
    """Run what `request` asks for; None on ranks other than the first.

    Raises `CommandError` for names, sizes and devices that do not exist.
    """
    place = Ranks.of_torchrun()
    device = torch_device(request.device, place)
    kind: DeviceType = "cuda" if device.type == "cuda" else "cpu"
    try:
        families, skipped = _able(select(request.wanted), place, explicit=bool(request.wanted))
        plans = make_plans(families, kind, request.sizes, request.dtypes)
    except UnknownNameError as error:
        raise CommandError(str(error), exit_code=2) from error
    with _group(place, device) as group:
        return _Bench(request, place, device, group).run(plans, skipped)


def _show(show: PartProgress, plan: BenchPlan, before: int, total: int, version: Version) -> None:
    """Tell `show` that `version` of `plan` comes next; `before` is how many earlier plans have."""
    done = before + plan.family.versions.index(version)
    show(f"{version.label} {plan.size} {plan.dtype}", done, total)


class _Bench:
    def __init__(
        self, request: Request, place: Ranks, device: torch.device, group: Coordination
    ) -> None:
        self._request = request
        self._place = place
        self._group = group
        self._fingerprint, self._position = fingerprint_with(device)
        described = self._fingerprint.devices[self._position]
        self._clock = clock_of(described)
        self._device = described
        self._profiled: list[ProfiledCase] = []
        self._options = BenchOptions(
            device=device,
            seed=request.seed,
            budget_s=request.budget_s,
            clock=None if request.check_only else self._clock,
            group=group,
        )

    def run(self, plans: Sequence[BenchPlan], skipped: Sequence[Skipped]) -> BenchReport | None:
        """See `run_bench`."""
        created_ns = time.time_ns()
        on_gpu = self._device.kind != "cpu"
        calibration = self._calibration()
        collection = LiveCollection(
            Scope([self._device.index], rank=self._place.rank, interval_ns=_SAMPLE_INTERVAL_NS)
        )
        collection.start()
        with collecting_warnings() as warned:
            results = list(self._run_all(plans))
        collected = collection.stop_into_tables()
        samples = collected.get("samples", schema.empty("samples"))
        cases = [one for one in results if isinstance(one, CaseResult)]
        report = BenchReport(
            tool_version=__version__,
            created_ns=created_ns,
            command=self._request.command,
            device=self._device,
            fingerprint=self._fingerprint,
            calibration=calibration,
            ranks=self._place.world_size,
            method=Method(
                clock=self._clock.name,
                flushed_bytes=self._clock.flushed_bytes,
                confidence=CONFIDENCE,
                precision=PRECISION,
                budget_s=self._request.budget_s,
                seed=self._request.seed,
            ),
            cases=tuple(_with_state(case, samples, self._device.index) for case in cases),
            skipped=(*skipped, *(one for one in results if isinstance(one, Skipped))),
            warnings=(
                *(note.sentence for note in collection.notes(gpu_in_use=on_gpu)),
                *warned,
                *(held_sentence(holder) for holder in (cupti_held_by(),) if holder and on_gpu),
            ),
        )
        if self._request.output is not None and self._profiled:
            self._store(report, collected, self._request.output, collection.plugins())
        return report if self._place.rank == 0 else None

    def _run_all(self, plans: Sequence[BenchPlan]) -> Iterator[CaseResult | Skipped]:
        total = sum(len(plan.family.versions) for plan in plans)
        before = 0
        with showing_parts(hidden=self._place.rank != 0) as show:
            for plan in plans:
                starting = partial(_show, show, plan, before, total)
                try:
                    yield from run_plan(plan, self._options, starting=starting, timed=self._profile)
                except UnknownNameError as error:
                    raise CommandError(str(error), exit_code=2) from error
                before += len(plan.family.versions)

    def _profile(self, result: CaseResult, prepared: Prepared) -> None:
        if self._request.output is not None:
            line_up = partial(self._group.line_up, result.head_start_ns)
            case = profile_case(result, prepared, self._clock.flush, line_up)
            self._profiled.append(case)

    def _calibration(self) -> Calibration | None:
        """The device's measured ceilings: kept ones, and for a CPU, which has no others, new."""
        if self._device.kind == "cpu" and self._place.alone and not self._request.check_only:
            return calibration_cache.calibrate_cached(self._device)
        return calibration_cache.load_cached(
            self._device, str(torch.__version__), torch.get_num_threads()
        )

    def _store(
        self,
        report: BenchReport,
        collected: Mapping[str, pl.DataFrame],
        output: CaptureOutput,
        plugins: tuple[PluginUse, ...],
    ) -> None:
        place = self._place
        capture = make_capture(
            report,
            self._profiled,
            collected,
            ranks=place,
            device_position=self._position,
            title=output.requested.name.removesuffix(storage.SUFFIX),
            plugins=plugins,
        )
        results = {BENCH_FILE: encode(report)}
        if place.alone:
            output.store(capture, analyze(capture), further=results)
            return
        parts = Parts(output.requested, place)
        parts.begin()
        store(capture, analyze(capture), parts.own)
        if place.rank != 0:
            return
        with parts.joined() as joined:
            if joined is not None:
                output.store(joined.capture, analyze(joined.capture), further=results)


def encode(report: BenchReport) -> bytes:
    """The JSON text of a bench, every timed call in it."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1)


def _with_state(case: CaseResult, samples: pl.DataFrame, device: int) -> CaseResult:
    """`case` with the clock and the slow-downs that NVML saw while it was timed, and sustained."""
    if case.sustained is not None:
        sustained = _with_clock(case.sustained, samples, device)
        case = msgspec.structs.replace(case, sustained=sustained)
    return _with_clock(case, samples, device)


def _with_clock(timed: TimedT, samples: pl.DataFrame, device: int) -> TimedT:
    if timed.started_ns is None or timed.ended_ns is None:
        return timed
    during = samples.filter(
        pl.col("time_ns").is_between(timed.started_ns, timed.ended_ns), pl.col("device") == device
    )
    state = summarize_samples(during)
    if state is None:
        return timed
    return msgspec.structs.replace(
        timed,
        sm_clock_mhz=state.sm_clock_mhz_median,
        throttle_reasons=state.throttle_reasons or (),
    )


def _able(
    families: Sequence[Family], place: Ranks, *, explicit: bool
) -> tuple[list[Family], list[Skipped]]:
    """The families that can run in so many processes, and why the others cannot."""
    able = [family for family in families if family.problem.needs_group != place.alone]
    unable = [family for family in families if family.problem.needs_group == place.alone]
    if place.alone:
        reasons = [_NEEDS_GROUP.format(family.name) for family in unable]
    else:
        reasons = ["runs in one process: start it without torchrun" for _ in unable]
    if explicit and unable:
        raise CommandError(f"{unable[0].name} {reasons[0]}", exit_code=2)
    return able, [
        Skipped(family.name, "", "", reason) for family, reason in zip(unable, reasons, strict=True)
    ]


@contextmanager
def _group(place: Ranks, device: torch.device) -> Iterator[Coordination]:
    """torch.distributed's default group under torchrun; alone, nothing."""
    if place.alone:
        yield Alone()
        return
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield Group(device)
    finally:
        dist.destroy_process_group()
