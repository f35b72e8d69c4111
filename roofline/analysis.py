"""Analysis: what a capture means. The only thing that reports, compare and gate read.

Written as `analysis.json`. Frozen structs; unknown is None, never 0 or NaN. Times are integer
nanoseconds and cover one process (rank). Fractions are of 1, not percent.
"""

from typing import Final, Literal

import msgspec

from gpuprof.collectors.device_health import DeviceHealth
from gpuprof.collectors.manifest import Device, Ending, Fingerprint, Schedule
from gpuprof.collectors.plugins import PluginUse
from gpuprof.roofline.activity_figures import Activity
from gpuprof.roofline.advice_figures import Advice, Binding
from gpuprof.roofline.checklist_figures import KernelChecklist
from gpuprof.roofline.classes import ClassName
from gpuprof.roofline.closed_form_figures import ClosedForm
from gpuprof.roofline.cost_models.cost import Flops
from gpuprof.roofline.energy_figures import Energy
from gpuprof.roofline.explanation_figures import ExplainedOperator
from gpuprof.roofline.graph_figures import ReplayedGraph
from gpuprof.roofline.host_figures import HostFigures
from gpuprof.roofline.idle_figures import IdleTime
from gpuprof.roofline.link_figures import LinkFigures
from gpuprof.roofline.machine.ceilings import Ceiling, Source
from gpuprof.roofline.measured_figures import MeasuredWork
from gpuprof.roofline.memory_figures import MemoryUse
from gpuprof.roofline.module_figures import FusedOperator, ModuleTree, SourceLine
from gpuprof.roofline.nccl_figures import NcclFigures
from gpuprof.roofline.overlap_figures import SlowedByCommunication
from gpuprof.roofline.parallelism_figures import Parallelism
from gpuprof.roofline.phase import Phase
from gpuprof.roofline.range_figures import RangeTime
from gpuprof.roofline.rank_figures import RanksAnalysis
from gpuprof.roofline.reading_figures import StepReading, WorkReading
from gpuprof.roofline.recorder_figures import RecorderFindings
from gpuprof.roofline.setting_figures import Settings
from gpuprof.roofline.slow_step_figures import SlowSteps
from gpuprof.roofline.spread_figures import CallSpread
from gpuprof.roofline.step_figures import Exposed, StepDefinition, StepSplit, StepTimes
from gpuprof.roofline.timeline_figures import Timeline
from gpuprof.roofline.total_figures import Totals

ANALYSIS_SCHEMA_VERSION = 4
ANALYSIS_FILE = "analysis.json"

Level = Literal["kernel", "op", "module", "range", "step"]


class Bottleneck(msgspec.Struct, frozen=True):
    """What holds a piece of work back, why we say so, and what removing it would gain."""

    kind: ClassName
    # One sentence with the numbers that the verdict rests on.
    evidence: str
    # Time a step would lose if this work ran at its roof, or if other work hid communication and
    # copies; None where there is no roof.
    gain_ns: int | None
    # Within which it lies, where it is not known how much the profiler, or others that had the
    # core, lengthened the work.
    gain_range_ns: tuple[int, int] | None = None


class Transfer(msgspec.Struct, frozen=True, kw_only=True):
    """Communication with other devices, or copies over a link, summed over the profiled steps."""

    # "communication" or "copy".
    kind: ClassName
    # The collective ("all-reduce"), or the copy's direction ("host to device"); "" where it is
    # unknown or several.
    what: str = ""
    # Of a copy: "pageable" or "pinned"; "" where unknown.
    host_memory: str = ""
    # The process group's name in torch, and its ranks.
    group: str | None = None
    group_size: int | None = None
    calls: int
    device_ns: int
    # What of device_ns no computing hides; of communication also no copy.
    exposed_ns: int
    # Of one call, by nccl-tests the full buffer; None where unknown or where calls differ.
    message_bytes: int | None = None
    # Of all calls.
    total_bytes: int | None = None
    # Of device_ns, what the calls waited for other ranks, and what of that is exposed; None where
    # the capture does not hold all ranks, or they do different things.
    waiting_ns: int | None = None
    exposed_waiting_ns: int | None = None
    # Of exposed_waiting_ns, in calls that follow another directly: with nothing launched between
    # them, it is the price of so many calls.
    call_waiting_ns: int | None = None
    # Of a collective, calls that could be one with the call before: nothing between the two waits
    # for the first.
    mergeable_calls: int = 0
    # total_bytes over the time without waiting: of a collective its algorithm bandwidth. Where
    # waiting is not known it is within the time, and the bandwidth a lower bound.
    bytes_per_s: float | None = None
    # Of a collective: algorithm bandwidth times its factor (nccl-tests, doc/PERFORMANCE.md).
    bus_bytes_per_s: float | None = None
    # The least time that the link's ceiling allows, its label, and its share of the time without
    # waiting.
    roof_ns: int | None = None
    roof: str = ""
    roof_fraction: float | None = None
    # Of one call, the least time of any size, where that is more than its bytes take at the link's
    # ceiling: a share of the bandwidth would say nothing.
    latency_ns: int | None = None
    # Of a collective: what as many of this kind, size and number of ranks take on these links,
    # measured on this machine; None where they were not measured.
    measured_ns: int | None = None
    # measured_ns over the time without waiting.
    measured_fraction: float | None = None
    # Of a pageable copy: what one of its size takes from pinned memory, measured on this machine.
    pinned_ns: int | None = None
    # Why there is no roof; "" where there is one.
    no_roof: str = ""


class RooflinePoint(msgspec.Struct, frozen=True, kw_only=True):
    """Work of one kind, summed over the profiled steps.

    kernel: launches of one kernel from one operator signature. op: calls of one operator with one
    signature, with all kernels they launched. module: all that one called. range: one user range.
    step: everything.
    """

    level: Level
    name: str
    # Input shapes and types as text, or a kernel's launch configuration; "" where unknown.
    detail: str = ""
    # For a kernel: the operator that launched it, "" where none did, and its shapes and types.
    op: str = ""
    op_detail: str = ""
    # For a kernel: kernel, memcpy, memset, collective, or op on a CPU.
    kind: str = ""
    phase: Phase = ""
    # The module that calls it, with repeated blocks taken together (layers.*.query), and the line
    # of the program; "" and None where unknown, or where calls of a kernel come from several.
    module: str = ""
    source: SourceLine | None = None
    # Of what torch.compile generated, or calls in a library: the operators of the program that it
    # is made of. `module` is the innermost that they all lie in, `source` the line of the first.
    fused: tuple[FusedOperator, ...] = ()
    # The outermost operator around it, as the program calls it; "" where that is several, or none.
    caller: str = ""
    calls: int
    # Sum of the durations of its device work.
    device_ns: int
    # device_ns over all device time in the profiled steps.
    device_fraction: float
    # Of a kernel and an operator; None where they were called once.
    spread: CallSpread | None = None
    flops: tuple[Flops, ...] | None = None
    bytes_read: int | None = None
    bytes_written: int | None = None
    # Read plus written, where only that is known.
    undivided_bytes: int | None = None
    # FLOP per byte.
    arithmetic_intensity: float | None = None
    flops_per_s: float | None = None
    bytes_per_s: float | None = None
    # The least time that the ceilings allow for this work, and the label of the one that binds.
    roof_ns: int | None = None
    roof: str = ""
    # roof_ns / device_ns. Over 1 means cached data, or a wrong peak or count; never clipped.
    roof_fraction: float | None = None
    bottleneck: Bottleneck
    assumptions: tuple[str, ...] = ()
    # Where most of its time is communication or copies over a link; its roof is the link's then.
    transfer: Transfer | None = None
    # Of a kernel: clock and power while it ran, and its roof there; None where nothing was sampled.
    reading: WorkReading | None = None

    @property
    def total_flops(self) -> int | None:
        """Matmul and vector operations together."""
        return None if self.flops is None else sum(part.count for part in self.flops)

    @property
    def total_bytes(self) -> int | None:
        """Bytes read plus bytes written."""
        if self.bytes_read is None or self.bytes_written is None:
            return self.undivided_bytes
        return self.bytes_read + self.bytes_written


class Utilization(msgspec.Struct, frozen=True, kw_only=True):
    """Model FLOP utilization of a step: model_flops / step_ns / peak."""

    # The one in which most of the matmul FLOPs ran.
    precision: str
    # Matmul FLOPs of one step, causal attention counted in full (PaLM's convention). Without what
    # is computed a second time: checkpointed activations, the scores in attention's backward.
    model_flops: int
    # The same with causal attention counted as the pairs its mask keeps.
    model_flops_causal: int
    # The two counts with what is computed a second time. None in an analysis made without them.
    hardware_flops: int | None = None
    hardware_flops_causal: int | None = None
    # Of hardware_flops: what activation checkpointing recomputed.
    checkpointed_flops: int = 0
    # Matmul FLOPs of one step that the optimizer does itself. In none of the other counts.
    optimizer_flops: int = 0
    # The median of the timed steps; without them, or where they did other work, the mean of the
    # profiled steps, which the profiler stretches: every share is of those steps alone then.
    step_ns: int
    basis: StepDefinition = "timed"
    # GPUs of this process that computed: the shares are of all their peaks together.
    devices: int = 1
    flops_per_s: float
    peak: Ceiling | None = None
    mfu: float | None = None
    mfu_causal: float | None = None
    hfu: float | None = None
    hfu_causal: float | None = None
    # A run in 8 bits or fewer also against the bf16 peak, and one partly in fp8 against that too.
    other_peak: Ceiling | None = None
    mfu_other_peak: float | None = None
    # What one step without a backward pass must read: weights, and keys and values.
    # None in training, or where a part is not known.
    weight_bytes: int | None = None
    key_value_bytes: int | None = None
    memory_peak: Ceiling | None = None
    # (weight_bytes + key_value_bytes) / step_ns / memory_peak.
    mbu: float | None = None


class UnmodelledOp(msgspec.Struct, frozen=True):
    """Device time that has no cost model."""

    name: str
    device_ns: int
    calls: int


# Of the device time: without more of it in the count, MFU is a lower bound.
NEGLIGIBLE: Final = 0.03


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of the device time in the profiled steps; None where there was none."""

    device_ns: int
    with_op: float | None = None
    with_flops: float | None = None
    with_bytes: float | None = None
    # Of the kernels' time: those that show FLOPs and bytes themselves. The rest of an operator that
    # has a model helps its main kernel, or shares its work.
    kernels_counted: float | None = None
    # Device time outside the profiled steps, which the shares leave out.
    outside_ns: int = 0
    # Launches in the profiled steps, and those of them whose device work was not recorded. Where
    # there are any, the device time and the shares are of what was recorded.
    launches: int = 0
    lost_launches: int = 0
    unmodelled: tuple[UnmodelledOp, ...] = ()

    @property
    def without_flops(self) -> float:
        """The share of device time in which products may hide that nobody counted."""
        return 1 - (self.with_flops or 0.0)


class DeviceState(msgspec.Struct, frozen=True, kw_only=True):
    """The device during the timed steps, as NVML sampled it. None where a field did not answer."""

    samples: int
    sm_clock_mhz_median: int | None = None
    sm_clock_mhz_minimum: int | None = None
    sm_clock_mhz_maximum: int | None = None
    power_watts_median: float | None = None
    temperature_celsius_maximum: int | None = None
    memory_used_bytes_maximum: int | None = None
    # The link to the host in use: the highest generation and the most lanes that were seen.
    pcie_generation: int | None = None
    pcie_width: int | None = None
    # NVML's names, without those that are no slow-down (idle, applications clock).
    throttle_reasons: tuple[str, ...] | None = None
    # During the profiled steps.
    profiled_sm_clock_mhz_median: int | None = None


class Analysis(msgspec.Struct, frozen=True, kw_only=True):
    """One process of one capture, analysed."""

    schema_version: int = ANALYSIS_SCHEMA_VERSION
    tool_version: str
    source: str
    title: str
    created_ns: int
    rank: int
    world_size: int
    command: tuple[str, ...] = ()
    ending: Ending = "unknown"
    exit_code: int | None = None
    fingerprint: Fingerprint
    device: Device | None
    schedule: Schedule | None = None
    steps: StepTimes
    ceilings: tuple[Ceiling, ...] = ()
    # Which ceilings the percentages use; None where the device has none.
    roof_source: Source | None = None
    split: StepSplit | None = None
    # Why no device had work in it; None where there is no split.
    idle: IdleTime | None = None
    # Of the device that the step waits for; None where no device work was recorded.
    exposed: Exposed | None = None
    # Of all devices of the process, by number.
    devices: tuple[Exposed, ...] = ()
    utilization: Utilization | None = None
    # None where the parameters of the model are not known, or the formula does not apply.
    closed_form: ClosedForm | None = None
    # The largest loss of the step.
    bottleneck: Bottleneck
    # What most of the step goes to; None where it has no split.
    binds: Binding | None = None
    # What to change, most gain first; () where nothing above the noise is known.
    advice: tuple[Advice, ...] = ()
    coverage: Coverage
    step: RooflinePoint | None = None
    # Each sorted by device time, largest first.
    kernels: tuple[RooflinePoint, ...] = ()
    ops: tuple[RooflinePoint, ...] = ()
    ranges: tuple[RooflinePoint, ...] = ()
    # Device work by module; None where modules and lines were not recorded.
    modules: ModuleTree | None = None
    # How long each of the program's ranges was open, also of those without device work; the
    # longest first, 300 names at most. Empty in an analysis made without them.
    range_times: tuple[RangeTime, ...] = ()
    # None in an analysis made without it.
    host: HostFigures | None = None
    # By what moves, group and size, those first that most of the step waits for.
    transfers: tuple[Transfer, ...] = ()
    # None where no kernel ran both alone and under a collective.
    slowed_by_communication: SlowedByCommunication | None = None
    # What all ranks say together; None for one alone.
    ranks: RanksAnalysis | None = None
    # What collectives do over all ranks; None where no collective has all its ranks.
    links: LinkFigures | None = None
    # NCCL's communicators of all ranks, by its logs; None without them.
    nccl: NcclFigures | None = None
    # What the flight recorder says of all ranks; None without its dumps.
    recorder: RecorderFindings | None = None
    # How the job is divided over ranks; None where no communication tells.
    parallelism: Parallelism | None = None
    # By kind of work, phase and precision; None where no device work was recorded.
    totals: Totals | None = None
    # The largest of `ops`, with what no row has room for.
    explained: tuple[ExplainedOperator, ...] = ()
    # Those first whose replays took most device time.
    graphs: tuple[ReplayedGraph, ...] = ()
    # How long all steps took that ran without the profiler, and what differed in the slowest.
    slow_steps: SlowSteps | None = None
    # What ran when in a typical profiled step and the slowest one; None where nothing was profiled,
    # and in an analysis made without it.
    timeline: Timeline | None = None
    # Settings that cost, with their evidence.
    settings: Settings | None = None
    device_state: DeviceState | None = None
    # Of the timed steps; None where too few readings of the device's counter lie in them.
    energy: Energy | None = None
    # The timed steps with clock and power, in order of time; () where nothing was sampled.
    step_readings: tuple[StepReading, ...] = ()
    # Of the device, by its driver; None where that did not tell.
    health: DeviceHealth | None = None
    peak_memory_bytes: int | None = None
    # None where nothing was recorded of it.
    memory: MemoryUse | None = None
    # None where the capture has no hardware counters.
    measured: MeasuredWork | None = None
    # Of the largest kernels, by counters where they were counted, else by their launches.
    checklists: tuple[KernelChecklist, ...] = ()
    # What the device's own counters say of the timed steps.
    activity: Activity | None = None
    # What plug-ins made of it: models that counted, classes, peaks, and what read or recorded it.
    plugins: tuple[PluginUse, ...] = ()
    # Those that were asked, whether or not they had anything to say: "toy-gpuprof 1.0".
    installed_plugins: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def holds_work(self) -> bool:
        """Whether it is of steps or device work, and not of dumps or logs of collectives alone."""
        if self.recorder is None and self.nccl is None:
            return True
        of_any_rank = self.ranks is not None and any(each.steps for each in self.ranks.ranks)
        alone = self.steps.length_ns is not None or self.coverage.with_flops is not None
        return alone or of_any_rank
