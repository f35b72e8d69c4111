"""What a capture says about itself: where it was made, how, and what it could not see.

Structs are written as JSON (`manifest.json`, `rank=R/process.json`) and read back by type.
Unknown is None; nothing is guessed.
"""

from typing import Final, Literal

import msgspec

from gpuprof.collectors.communicators import Communicator, ProcessGroup
from gpuprof.collectors.counting import CountingPass
from gpuprof.collectors.device_health import DeviceHealth
from gpuprof.collectors.link_calibration import LinkCalibration
from gpuprof.collectors.plugins import PluginUse
from gpuprof.collectors.rank_numbers import Rank, WorldSize
from gpuprof.collectors.watched_steps import WatchedSteps

CAPTURE_SCHEMA_VERSION = 1

DeviceKind = Literal["cuda", "hip", "cpu"]
# What tells a process's rank. order: nothing does, it is numbered as the files are given.
RankSource = Literal["content", "file name", "order"]
# How the process stopped, as far as the capture knows.
Ending = Literal[
    "finished", "exception", "sigterm", "sighup", "interrupted", "exit", "killed", "unknown"
]
# Whoever ended the program does not want to wait.
ENDED_BY_A_SIGNAL: tuple[Ending, ...] = ("sigterm", "sighup", "interrupted")


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One device that the process could use. Sizes in bytes, clocks in MHz."""

    index: int
    kind: DeviceKind
    name: str
    uuid: str | None = None
    total_memory_bytes: int | None = None
    # Streaming multiprocessors, compute units, or the CPU cores this process may run on.
    multiprocessors: int | None = None
    compute_capability: str | None = None
    architecture: str | None = None
    l2_cache_bytes: int | None = None
    warp_size: int | None = None
    power_limit_milliwatts: int | None = None
    maximum_sm_clock_mhz: int | None = None
    maximum_memory_clock_mhz: int | None = None
    # Application clocks that somebody set (nvidia-smi -ac); None at their default, and where NVML
    # does not tell.
    application_graphics_clock_mhz: int | None = None
    application_memory_clock_mhz: int | None = None
    mig: bool | None = None


class Fingerprint(msgspec.Struct, frozen=True, kw_only=True):
    """The environment that decides how fast the same program runs."""

    devices: tuple[Device, ...] = ()
    driver: str | None = None
    cuda: str | None = None
    hip: str | None = None
    torch: str | None = None
    triton: str | None = None
    cudnn: str | None = None
    nccl: str | None = None
    python: str | None = None
    platform: str | None = None
    cpu: str | None = None
    cpu_cores: int | None = None
    torch_threads: int | None = None
    # torch's settings that change which units a float32 product runs on.
    float32_matmul_precision: str | None = None
    allow_tf32_matmul: bool | None = None
    allow_tf32_cudnn: bool | None = None
    # The CPUs' frequency governor, and the cores that a control group allows; None without them.
    cpu_governor: str | None = None
    cpu_quota_cores: float | None = None
    # Of torch and Python: what is not at its default (gpuprof.collectors.live.torch_settings). None
    # where that was not looked at: traces of other tools, and captures of older versions.
    torch_settings: dict[str, str] | None = None
    # Only the variables named in gpuprof.collectors.live.fingerprint and in settings.toml are ever
    # stored.
    environment: dict[str, str] = {}


class MeasuredCeiling(msgspec.Struct, frozen=True, kw_only=True):
    """A rate this machine reached in a calibration run.

    `kind` compute: `rate` in FLOP/s for `precision`; memory: bytes/s for `level`; link: bytes/s one
    way, `level` the link. `spread` is (maximum - minimum) / median over the repeats.
    """

    kind: Literal["compute", "memory", "link"]
    name: str
    rate: float
    spread: float
    repeats: int
    precision: str | None = None
    # The unit of a device's compute; None where its datasheet tells which one the library uses.
    unit: Literal["tensor", "vector"] | None = None
    # "DRAM", "L3", "L2", "L1", "shared"; "PCIe h2d", "PCIe d2h", the same with " pageable",
    # "NVLink", "peer".
    level: str | None = None
    # Of a link to the host: what a copy takes however small it is. The rate is that of the largest.
    # Of a level of memory: what one load takes that waits for the one before.
    latency_ns: float | None = None
    # What a CPU's caches of `level` hold: work on less data than that is near them.
    capacity_bytes: int | None = None
    # How it was measured, in words: the kernel and its size.
    method: str = ""
    # A GPU meanwhile, as NVML saw it: its median clock, and what lowered it.
    sm_clock_mhz: int | None = None
    slowed_by: tuple[str, ...] = ()
    # As of the calibration; earlier where its rate was the higher one.
    other_work: float | None = None
    measured_ns: int | None = None


class CopyTimes(msgspec.Struct, frozen=True, kw_only=True):
    """What one copy between host and device takes by its size, alone on the device."""

    # "host to device" or "device to host"; "pinned" or "pageable".
    direction: str
    host_memory: str
    # (bytes, median time in ns of `repeats` copies), the smallest first.
    times: tuple[tuple[int, float], ...]
    repeats: int
    # As of a ceiling, of the largest.
    spread: float


class LaunchCost(msgspec.Struct, frozen=True, kw_only=True):
    """What starting one piece of work costs, queued back to back."""

    # "torch operator", "empty kernel"
    what: str
    # Of the host: the least that a batch of calls took, for one, because whatever interrupts the
    # host only adds; and the median, which is what a program meets.
    host_ns: float
    host_median_ns: float
    # Of the device, from one start to the next, all queued beforehand: the least of the repeats;
    # None on a CPU.
    device_ns: float | None = None
    # As of a ceiling.
    device_spread: float | None = None
    # Batches of the host, and repeats of the device.
    batches: int
    repeats: int


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """The ceilings measured on one device, with what they depend on."""

    device: Device
    torch: str
    threads: int | None
    measured_ns: int
    ceilings: tuple[MeasuredCeiling, ...]
    launch_costs: tuple[LaunchCost, ...] = ()
    copies: tuple[CopyTimes, ...] = ()
    # The share of the device that others used: of a CPU's cores meanwhile, of a GPU just before.
    other_work: float | None = None
    # What else the device was doing, in plain sentences.
    conditions: tuple[str, ...] = ()
    # What was not measured, and why.
    left_out: tuple[str, ...] = ()
    # Names of what has no figure because the machine was too busy for a true one.
    refused: tuple[str, ...] = ()


class ParameterGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of one type that one group of a live optimizer steps.

    Only captures of earlier versions have this: the profiler leaves lists of more than 30 tensors
    empty in a trace, which now has them from elsewhere (collectors/kineto/tensor_lists.py).
    """

    optimizer: str
    elements: int
    # As the profiler names types: "float", "c10::BFloat16".
    dtype: str
    weight_decay: float | None


# What a parameter does. embedding: a table that rows are only looked up in. convolution: a kernel.
# matrix: any other with two or more axes. other: norms, biases, scales.
ParameterRole = Literal["embedding", "convolution", "matrix", "other"]


class ParameterShape(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of one role and shape in one model."""

    role: ParameterRole
    shape: tuple[int, ...]
    count: int
    trainable: bool


class ModelParameters(msgspec.Struct, frozen=True, kw_only=True):
    """The one model with parameters that the process held, by role and shape."""

    # The class of its outermost module.
    name: str
    shapes: tuple[ParameterShape, ...]


# A GPU at its power limit lowers its clock over about the first 200 ms of load: until then each
# call of a product takes longer than the one before it, by up to 10 % in all (seen on an H100).
GPU_SETTLING_NS: Final = 300_000_000
# A whole step draws less than a product alone, and heats the chip for longer until it is steady:
# after 0.3 s steps were still 2 to 4 % shorter than a second later (five programs on an H200), and
# after 1 s those of a GAN 4 % longer than from 1.4 s on.
STEPS_SETTLING_NS: Final = 2_000_000_000


# NVML's activity counters are read every 0.1 to 0.12 s, and are up to 0.2 s old then: in so long a
# time two windows of them lie whole, or three.
STEPS_COUNTED_NS: Final = 600_000_000


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """Steps asked for in each phase."""

    warmup: int = 3
    timed: int = 10
    profiled: int = 3
    # How long a GPU must have worked since the first step before its steps count as timed.
    settling_ns: int = 0
    # More steps are timed until a GPU has done them for so long.
    least_timed_ns: int = 0

    @classmethod
    def of(
        cls, warmup: int | None, timed: int | None, profiled: int, *, alone: bool = True
    ) -> "Schedule":
        """With `warmup` None, three steps, and until a GPU's clock has settled.

        With `timed` None ten, and until a GPU's own counters have had a window. Not where there are
        other ranks, which would time different numbers of steps.
        """
        return cls(
            warmup=3 if warmup is None else warmup,
            timed=10 if timed is None else timed,
            profiled=profiled,
            settling_ns=STEPS_SETTLING_NS if warmup is None else 0,
            least_timed_ns=STEPS_COUNTED_NS if timed is None and alone else 0,
        )


class CollectedGeneration(msgspec.Struct, frozen=True, kw_only=True):
    """Garbage collections of one generation: how many, and how long they held the program."""

    collections: int
    paused_ns: int


class Recompiled(msgspec.Struct, frozen=True, kw_only=True):
    """Functions that torch.compile compiled again because of one guard."""

    function: str
    file: str | None
    line: int | None
    # What the compiled code had taken for granted, as it failed the first time; None where torch
    # does not tell.
    guard: str | None
    times: int


class GraphBreak(msgspec.Struct, frozen=True, kw_only=True):
    """A place where torch.compile had to leave its graph."""

    reason: str
    file: str | None
    line: int | None
    times: int


class NotCompiled(msgspec.Struct, frozen=True, kw_only=True):
    """A function that torch.compile gave up on, so that it runs as if it were not compiled.

    It does so where a graph breaks in a loop or a `with` block, and at an error in compiling.
    """

    function: str
    # None where torch does not tell. The line is the one that stood in the way, else the
    # function's first.
    reason: str | None
    file: str | None
    line: int | None
    times: int


class Compilations(msgspec.Struct, frozen=True, kw_only=True):
    """What torch.compile did in the process."""

    # Functions and backward passes compiled, those again included.
    compiled: int
    recompiled: int
    # In which any was compiled.
    compiling_ns: int
    # The most frequent first.
    recompilations: tuple[Recompiled, ...] = ()
    breaks: tuple[GraphBreak, ...] = ()
    given_up: tuple[NotCompiled, ...] = ()
    # torch keeps the last ones only: there were more.
    at_least: bool = False


class AllocatorStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What torch's allocator of one CUDA device counted since the program began."""

    device: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    # Times that it gave all free memory back to the driver and tried again; what failed then.
    retries: int
    failures: int


class LaterSteps(msgspec.Struct, frozen=True, kw_only=True):
    """Steps after the profiled ones, in blocks of equally many."""

    block_steps: int
    # By CUDA events; else by the host's clock.
    on_device: bool = False
    blocks_ns: tuple[int, ...]


class ProcessInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One process of the captured program."""

    rank: Rank = 0
    rank_from: RankSource = "content"
    world_size: WorldSize = 1
    process: int | None = None
    # Stands for its host (collectors/host_identity.py); names are not kept.
    host: str | None = None
    command: tuple[str, ...] = ()
    started_ns: int | None = None
    ended_ns: int | None = None
    exit_code: int | None = None
    ending: Ending = "unknown"
    fingerprint: Fingerprint = Fingerprint()
    # The device whose work this process's kernels are: an index into fingerprint.devices.
    device: int = 0
    schedule: Schedule | None = None
    steps_found_by: str | None = None
    later_steps: LaterSteps | None = None
    # In their place with `gpuprof run --watch`.
    watched_steps: WatchedSteps | None = None
    shapes_recorded: bool = False
    peak_memory_bytes: int | None = None
    # Of each device that holds or held memory.
    allocators: tuple[AllocatorStatistics, ...] = ()
    # Names of the exceptions that ended the program: the one it ended with, then those behind it.
    exceptions: tuple[str, ...] = ()
    # Of the GPUs that the process could use; empty where NVML did not tell.
    device_health: tuple[DeviceHealth, ...] = ()
    # Times that torch.compile had to leave a graph; None where nothing was compiled.
    graph_breaks: int | None = None
    # None where nothing was compiled, or in captures of older versions.
    compilations: Compilations | None = None
    # From the youngest generation to the oldest; empty where nothing counted.
    garbage_collections: tuple[CollectedGeneration, ...] = ()
    parameter_groups: tuple[ParameterGroup, ...] = ()
    # None where there was no model, more than one, or one whose parameters lie on several ranks.
    model: ModelParameters | None = None
    # All parameters were on torch's meta device, where operators only work out shapes.
    only_meta_tensors: bool = False
    calibration: Calibration | None = None
    # What collectives take among devices of this kind, measured on this machine.
    link_calibration: LinkCalibration | None = None
    # Of torch.distributed, as a trace or its flight recorder knows them.
    process_groups: tuple[ProcessGroup, ...] = ()
    # Of NCCL, as its log tells.
    communicators: tuple[Communicator, ...] = ()
    # None where nothing was counted in a run of its own.
    counting: CountingPass | None = None
    # True once kernels.op_id and kernels.step have been filled.
    attributed: bool = False
    # What plug-ins recorded or read of this process.
    plugins: tuple[PluginUse, ...] = ()
    # Plain sentences: what is missing or was repaired, and how to get it.
    warnings: tuple[str, ...] = ()


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The capture as a whole."""

    schema_version: int = CAPTURE_SCHEMA_VERSION
    tool_version: str
    # "gpuprof run", "gpuprof.profile", "kineto", "nsys", "ncu"
    source: str
    title: str
    created_ns: int
    clock: str = "unix epoch"
    ranks: tuple[Rank, ...] = (0,)
