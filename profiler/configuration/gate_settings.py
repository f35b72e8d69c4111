"""The gate's part of gpuprof.toml, as it is written: what is measured and what it may cost.

Figures may be written as people do: "3%", "412 ms", "1.5 GiB". `gpuprof.profiler.gate.rules` reads
them. Nothing here imports what is slow to import.
"""

from datetime import date
from typing import TypeAlias

import msgspec

from gpuprof.roofline.gate.budget import BudgetLevel, OnInconclusive

# Where baselines are kept, below the folder that programs run in.
BASELINE_FOLDER = "gpuprof-baselines"
Amount: TypeAlias = str | float | int


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A budget of one metric: regress relative to the base, max and min absolute."""

    regress: Amount | None = None
    max: Amount | None = None
    min: Amount | None = None
    level: BudgetLevel = "error"


class KernelLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A budget of the kernels that run."""

    max_new: int | None = None
    max_count_regress: Amount | None = None
    level: BudgetLevel = "error"


class BudgetSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One [[budget]]: benchmarks by a pattern of their names, and a limit for each metric."""

    match: str = "*"
    time: Limits | None = None
    kernel_time: Limits | None = None
    mfu: Limits | None = None
    hfu: Limits | None = None
    mbu: Limits | None = None
    bandwidth: Limits | None = None
    tokens_per_s: Limits | None = None
    launch_gap: Limits | None = None
    exposed_communication: Limits | None = None
    peak_memory: Limits | None = None
    launches: Limits | None = None
    synchronisations: Limits | None = None
    copied_bytes: Limits | None = None
    graph_breaks: Limits | None = None
    # Of other tools' results, `gpuprof gate results`.
    request_throughput: Limits | None = None
    output_throughput: Limits | None = None
    ttft: Limits | None = None
    ttft_p99: Limits | None = None
    tpot: Limits | None = None
    tpot_p99: Limits | None = None
    itl: Limits | None = None
    itl_p99: Limits | None = None
    e2el: Limits | None = None
    e2el_p99: Limits | None = None
    cpu_time: Limits | None = None
    batch_time: Limits | None = None
    kernels: KernelLimits | None = None
    class_change: BudgetLevel | None = None


class WaiverSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One [[waiver]]: a known regression that passes until a day."""

    match: str
    reason: str
    expires: date
    metric: str | None = None


class GateSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The [gate] table."""

    # The suite's false alarms.
    alpha: Amount = "1%"
    # Changes up to this are never regressions.
    min_effect: Amount = "1%"
    fail_above: Amount = "2%"
    # Pairs in all after which the suite is looked at; beyond the first only on suspicion.
    pairs: tuple[int, ...] = (5, 10, 20, 35)
    on_inconclusive: OnInconclusive = "warn"
    # How much slower than the pinned baseline a benchmark may have become; unlimited without it.
    cumulative: Amount | None = None
    # A shell command run once in each side's folder before anything is measured.
    setup: str = ""
    # The interpreter of both sides, relative to each side's folder; the gate's own without it.
    python: str = ""
    # Folders of each side that its programs import from, before anything that is installed.
    python_path: tuple[str, ...] = (".",)
