"""Runs versions on problems, one case after the other."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import msgspec
import torch

from gpuprof.collectors.live.nvtx_marks import pushed
from gpuprof.reference_kernels.benching.checking import check
from gpuprof.reference_kernels.benching.coordination import Coordination
from gpuprof.reference_kernels.benching.timing import Clock, time_calls
from gpuprof.reference_kernels.families import Family, UnknownNameError
from gpuprof.reference_kernels.suite import (
    TORCH_DTYPES,
    DeviceType,
    Prepared,
    Problem,
    UnsupportedError,
    Version,
)
from gpuprof.roofline.bench.results import CaseResult, Skipped, Sustained


@dataclass(frozen=True)
class BenchPlan:
    """One problem and the versions to solve it."""

    family: Family
    size: str
    dtype: str


@dataclass(frozen=True)
class BenchOptions:
    """How to run a plan. Without a clock the versions are checked and not timed."""

    device: torch.device
    seed: int
    budget_s: float
    clock: Clock | None
    group: Coordination


def make_plans(
    families: Sequence[Family],
    device_type: DeviceType,
    sizes: Sequence[str] = (),
    dtypes: Sequence[str] = (),
) -> list[BenchPlan]:
    """All problems to solve, with each family's own sizes and dtypes where none are given.

    Raises `UnknownNameError` for a dtype that the suite does not have, and for sizes with several
    families, which write them differently.
    """
    if unknown := [dtype for dtype in dtypes if dtype not in TORCH_DTYPES]:
        raise UnknownNameError(f"no dtype {unknown[0]!r}: there are {', '.join(TORCH_DTYPES)}")
    if sizes and len(families) > 1:
        names = ", ".join(family.name for family in families)
        raise UnknownNameError(f"sizes are of one family, and these are several: {names}")
    return [
        BenchPlan(family, size, dtype)
        for family in families
        for size in sizes or family.problem.default_sizes[device_type]
        for dtype in dtypes or family.problem.default_dtypes[device_type]
    ]


def run_plan(
    plan: BenchPlan,
    options: BenchOptions,
    *,
    starting: Callable[[Version], None] = lambda _: None,
    timed: Callable[[CaseResult, Prepared], None] = lambda *_: None,
) -> Iterator[CaseResult | Skipped]:
    """Check and time each version of `plan`.

    `starting` is told what comes next; `timed` gets each right version while it is still ready to
    be called. Raises `UnknownNameError` for a size that the family does not have.
    """
    able, skipped = _split_by_ability(plan, options.device)
    yield from skipped
    if not able:
        return
    try:
        problem = plan.family.problem(plan.size, plan.dtype, options.device, seed=options.seed)
    except ValueError as error:
        raise UnknownNameError(str(error)) from error
    reference = problem.reference()
    for version in able:
        starting(version)
        with pushed(f"{version.label} {problem.size} {problem.dtype}"):
            case = _run_case(version, problem, reference, options, timed)
        yield case
        if options.device.type == "cuda":
            torch.cuda.empty_cache()


def _split_by_ability(plan: BenchPlan, device: torch.device) -> tuple[list[Version], list[Skipped]]:
    able, skipped = [], []
    for version in plan.family.versions:
        reason = version.why_not(plan.dtype, device)
        if reason is None:
            able.append(version)
        else:
            skipped.append(Skipped(version.label, plan.size, plan.dtype, reason))
    return able, skipped


def _run_case(
    version: Version,
    problem: Problem,
    reference: tuple[torch.Tensor, ...],
    options: BenchOptions,
    timed: Callable[[CaseResult, Prepared], None],
) -> CaseResult | Skipped:
    work = problem.work()
    result = CaseResult(
        family=version.family,
        version=version.name,
        size=problem.size,
        dtype=problem.dtype,
        flops=work.flops,
        bytes_read=work.bytes_read,
        bytes_written=work.bytes_written,
        bus_bytes=work.bus_bytes,
        tolerance=problem.tolerance,
    )
    prepared: Prepared | None = None
    outcome: CaseResult | Skipped = result
    try:
        prepared = version.prepare(problem)
    except UnsupportedError as unsupported:
        outcome = Skipped(version.label, problem.size, problem.dtype, str(unsupported))
    # A version fails in any way it likes (a compiler's error, the device's): its row says so, and
    # the others still run.
    except Exception as error:
        outcome = _replace(result, error=_first_line(error))
    # Ranks that are ready must not wait in a collective for one that is not.
    (failed,) = options.group.largest([float(prepared is None)])
    if prepared is None:
        return outcome
    if failed:
        return _replace(result, error="another rank could not make it ready")
    try:
        described = _described(result, prepared, version)
        return _checked_and_timed(described, prepared, reference, options, timed)
    # As above.
    except Exception as error:
        return _replace(result, error=_first_line(error))


def _checked_and_timed(
    result: CaseResult,
    prepared: Prepared,
    reference: tuple[torch.Tensor, ...],
    options: BenchOptions,
    timed: Callable[[CaseResult, Prepared], None],
) -> CaseResult:
    error = check(prepared, reference, options.group)
    result = _replace(result, relative_error=error)
    tolerance = result.tolerance or 0.0
    # Also true of NaN.
    if not error <= tolerance:
        wrong = f"wrong: relative error {error:.2g}, rounding explains {tolerance:.2g}"
        return _replace(result, error=wrong)
    if options.clock is not None:
        result = _timed(result, prepared, options.clock, options)
        timed(result, prepared)
    return result


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"


def _described(result: CaseResult, prepared: Prepared, version: Version) -> CaseResult:
    by = f"from the plug-in {version.plugin}" if version.plugin else ""
    return _replace(
        result,
        executed_flops=prepared.executed_flops,
        expected_bytes_read=prepared.expected_bytes_read,
        expected_bytes_written=prepared.expected_bytes_written,
        note="; ".join(part for part in (prepared.note, by) if part),
    )


def _timed(
    result: CaseResult, prepared: Prepared, clock: Clock, options: BenchOptions
) -> CaseResult:
    started_ns = time.time_ns()
    timing = time_calls(prepared, clock, options.group, budget_s=options.budget_s)
    ended_ns = time.time_ns()
    median = timing.median
    alone = options.group.ranks == 1
    row = clock.sustain(prepared, timing, options.budget_s) if alone else None
    return _replace(
        result,
        median_ns=median.value,
        lower_ns=median.lower,
        upper_ns=median.upper,
        relative_spread=median.relative_spread,
        precise=timing.precise,
        samples_ns=timing.times_ns,
        host_samples_ns=tuple(s.host_ns for s in timing.samples if s.host_ns is not None),
        head_start_ns=timing.head_start_ns,
        started_ns=started_ns,
        ended_ns=ended_ns,
        sustained=None if row is None else Sustained(**asdict(row)),
    )


def _replace(result: CaseResult, **changes: object) -> CaseResult:
    return msgspec.structs.replace(result, **changes)
