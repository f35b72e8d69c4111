"""What an analysis says, as labelled sentences: the words shared by every report.

Each function takes a part of an `Analysis` and returns `Fact`s or a sentence. Text is plain:
escaping for a terminal, HTML or Markdown is the renderer's.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuprof.reports import formatting
from gpuprof.roofline.analysis import (
    Analysis,
    DeviceState,
    RooflinePoint,
    StepSplit,
    StepTimes,
)
from gpuprof.roofline.classes import BottleneckClass, bottleneck_class
from gpuprof.roofline.cost_models.cost import Flops
from gpuprof.roofline.machine.ceilings import Ceiling, at_clock

OVER_PEAK = "over 100%: peak or count wrong, or data in cache"


@dataclass(frozen=True)
class Fact:
    """One labelled value; `note` says what it is measured against or where it comes from."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class StepShare:
    """One part of a step's time: a bottleneck class with its share of the step."""

    row: BottleneckClass
    nanoseconds: int
    fraction: float


def step_shares(split: StepSplit) -> tuple[StepShare, ...]:
    """The parts of `split` in the order of the bar; they add up to the step."""
    return tuple(
        StepShare(
            bottleneck_class(part.kind),
            part.nanoseconds,
            part.nanoseconds / split.step_ns if split.step_ns else 0.0,
        )
        for part in split.parts
    )


def split_basis(split: StepSplit) -> str:
    """What the split's times were taken from."""
    if split.basis == "timed":
        return "device work of the profiled steps, inside the step time without the profiler"
    return "from profiled steps only, which the profiler stretches"


def is_cpu(analysis: Analysis) -> bool:
    """True where the device is the CPU, so that each piece of device work is a leaf operator."""
    return analysis.device is not None and analysis.device.kind == "cpu"


def device_line(analysis: Analysis) -> str:
    """The device and the versions that decide its speed, on one line."""
    fingerprint = analysis.fingerprint
    name = analysis.device.name if analysis.device else "no device recorded"
    versions = (
        ("torch", fingerprint.torch),
        ("CUDA", fingerprint.cuda),
        ("HIP", fingerprint.hip),
        ("driver", fingerprint.driver),
    )
    return joined([name, *(f"{label} {value}" for label, value in versions if value)])


def joined(parts: Iterable[str]) -> str:
    """Short parts of one line, apart by a middle dot."""
    return " · ".join(part for part in parts if part)


def sentence(text: str) -> str:
    """`text` with a capital first letter and a full stop, as it stands among other sentences.

    A first word that is no plain word, such as aten::mm, keeps its letters.
    """
    text = text.strip()
    first = text.partition(" ")[0]
    if first.rstrip(":,").isalpha():
        text = text[:1].upper() + text[1:]
    return text if not text or text.endswith((".", "!", "?")) else f"{text}."


def ending_sentence(analysis: Analysis) -> str:
    """How the program stopped, where that was not by finishing; else ""."""
    code = "" if analysis.exit_code is None else f" (exit code {analysis.exit_code})"
    return {
        "exception": f"The script ended with an exception{code}; this is what came before.",
        "sigterm": "The script was stopped by SIGTERM; this is what came before.",
        "interrupted": "The script was interrupted; this is what came before.",
        "exit": f"The script left early{code}." if analysis.exit_code else "",
    }.get(analysis.ending, "")


def step_facts(steps: StepTimes) -> tuple[Fact, ...]:
    """How steps were found, how long they took and on what clock, what the profiler added."""
    facts = [
        Fact("Steps", steps.found_by or formatting.UNKNOWN, schedule_text(steps)),
        step_time_fact(steps),
    ]
    if steps.tokens_per_s is not None:
        speed = formatting.quantity(steps.tokens_per_s, "tokens/s")
        facts.append(Fact("Throughput", speed, "of this rank, as its steps declared"))
    if steps.host_median_ns is not None and steps.clock == "CUDA events":
        facts.append(Fact("Host clock", step_duration(steps.host_median_ns), "same steps"))
    if steps.launches_per_step is not None:
        facts.append(Fact("Launches", f"{formatting.count(steps.launches_per_step)} a step"))
    facts.append(stretch_fact(steps))
    return tuple(facts)


def schedule_text(steps: StepTimes) -> str:
    """How many steps of each phase there were."""
    return f"{steps.warmup} warm-up, {steps.timed} timed, {steps.profiled} profiled"


def step_time_fact(steps: StepTimes) -> Fact:
    """The median step time with its range, spread and clock."""
    if steps.median_ns is None:
        return Fact("Step time", formatting.UNKNOWN, "no complete step was seen")
    number = steps.timed or steps.profiled
    notes = [f"median of {number}" if number > 1 else "one step"]
    if number > 1 and steps.minimum_ns is not None and steps.maximum_ns is not None:
        notes.append(f"{step_duration(steps.minimum_ns)} to {step_duration(steps.maximum_ns)}")
    if number > 1 and steps.relative_spread is not None:
        notes.append(f"quartiles {formatting.percent(steps.relative_spread)} apart")
    notes.append(steps.clock)
    return Fact("Step time", step_duration(steps.median_ns), ", ".join(notes))


def step_duration(nanoseconds: int | None) -> str:
    """A step's time, with a digit more than other times: steps differ by less than 1 %."""
    return formatting.duration(nanoseconds, digits=4)


def stretch_fact(steps: StepTimes) -> Fact:
    """What the profiler added to a step."""
    if steps.profiler_stretch is None:
        why = "no step was timed without it" if not steps.timed else "no step was profiled"
        return Fact("Profiler", formatting.UNKNOWN, f"its cost is unknown: {why}")
    stretch = steps.profiler_stretch
    if stretch < 0:
        return Fact("Profiler", "no cost seen", "profiled steps were not slower than timed ones")
    profiled = step_duration(steps.profiled_median_ns)
    return Fact("Profiler", f"+{formatting.percent(stretch)}", f"a profiled step takes {profiled}")


def gain_sentence(gain_ns: int) -> str:
    """What removing a bottleneck would gain."""
    return f"Up to {formatting.duration(gain_ns)} a step to gain."


def flops_text(flops: tuple[Flops, ...] | None) -> str:
    """FLOPs by unit and precision: "137 GFLOP bf16 matmul + 2.1 MFLOP fp32 vector"."""
    if flops is None:
        return formatting.UNKNOWN
    counted = [part for part in flops if part.count]
    if not counted:
        return "none"
    return " + ".join(
        f"{formatting.flops(part.count)} {part.precision} {part.kind}" for part in counted
    )


def roof_percent(fraction: float | None) -> str:
    """A share of the roof, marked with ! where it is over 100 %."""
    return formatting.percent(fraction) + ("!" if is_over_peak(fraction) else "")


def is_over_peak(fraction: float | None) -> bool:
    """Over 100 % by more than the last printed digit."""
    return fraction is not None and fraction > 1.0005


def any_over_peak(points: Iterable[RooflinePoint]) -> bool:
    """True where a share of the roof needs its warning."""
    return any(is_over_peak(point.roof_fraction) for point in points)


def coverage_sentence(analysis: Analysis) -> str:
    """The shares of device time that have an op, a FLOP model and a byte model."""
    coverage = analysis.coverage
    outside = ""
    if coverage.outside_ns:
        left_out = formatting.duration(coverage.outside_ns)
        outside = f" {left_out} of device work belong to no profiled step and are left out."
    if not coverage.device_ns:
        return f"No device work was recorded in the profiled steps.{outside}"
    return (
        f"{formatting.percent(coverage.with_op)} of {formatting.duration(coverage.device_ns)} "
        f"device time has an operator, {formatting.percent(coverage.with_flops)} a FLOP model, "
        f"{formatting.percent(coverage.with_bytes)} a byte model.{outside}"
    )


def roof_sentence(analysis: Analysis) -> str:
    """Which ceilings the percentages are taken against."""
    if analysis.roof_source is None:
        return (
            "No ceiling is known for this device, so there are no percentages of a roof; "
            "gpuprof calibrate measures them."
        )
    if analysis.roof_source == "datasheet":
        return "Percentages of the roof are of the datasheet's dense peaks."
    return "Percentages of the roof are of the rates measured on this device by gpuprof calibrate."


def ceiling_fact(analysis: Analysis) -> Fact:
    """The ceilings that bind this work, the largest part of it first, and their origin."""
    if analysis.roof_source is None:
        return Fact("Ceilings", formatting.UNKNOWN, "none is known for this device")
    binding = dict.fromkeys(op.roof for op in analysis.ops if op.roof)
    ceilings = [
        ceiling
        for label in binding
        for ceiling in analysis.ceilings
        if ceiling.label == label and ceiling.source == analysis.roof_source
    ]
    value = ", ".join(
        f"{formatting.quantity(ceiling.rate, 'FLOP/s')} {ceiling.precision} {ceiling.unit}"
        if ceiling.kind == "compute"
        else f"{formatting.quantity(ceiling.rate, 'B/s')} {ceiling.level}"
        for ceiling in ceilings[:3]
    )
    if analysis.roof_source == "measured":
        return Fact("Ceilings", value or formatting.UNKNOWN, "measured here by gpuprof calibrate")
    origins = ", ".join(dict.fromkeys(ceiling.reference for ceiling in ceilings[:3]))
    notes = ["dense", *_at_seen_clock(analysis, ceilings[:3]), origins] if origins else []
    return Fact("Ceilings", value or formatting.UNKNOWN, "; ".join(notes))


def _at_seen_clock(analysis: Analysis, ceilings: Sequence[Ceiling]) -> list[str]:
    """ "1.07 PFLOP/s bf16 tensor at the 1980 MHz seen", of the first that has a clock."""
    state = analysis.device_state
    clock = None if state is None else state.sm_clock_mhz_median
    scaled = [found for each in ceilings if (found := at_clock(each, clock)) is not None]
    return [
        f"{formatting.flops_rate(each.rate)} {each.precision} {each.unit} at the {clock} MHz seen"
        for each in scaled[:1]
    ]


def device_facts(analysis: Analysis) -> tuple[Fact, ...]:
    """The device itself."""
    device = analysis.device
    if device is None:
        return (Fact("Device", formatting.UNKNOWN, "none was recorded"),)
    cores = "CPU cores" if device.kind == "cpu" else "Multiprocessors"
    limit = device.power_limit_milliwatts
    return _known(
        ("Device", device.name),
        ("Kind", device.kind),
        ("Architecture", device.architecture),
        ("Compute capability", device.compute_capability),
        (cores, device.multiprocessors),
        ("Memory", _bytes(device.total_memory_bytes)),
        ("L2 cache", _bytes(device.l2_cache_bytes)),
        ("Power limit", None if limit is None else f"{limit / 1000:.0f} W"),
        ("Maximum SM clock", _megahertz(device.maximum_sm_clock_mhz)),
        ("Maximum memory clock", _megahertz(device.maximum_memory_clock_mhz)),
        ("MIG", None if device.mig is None else "on" if device.mig else "off"),
    )


def environment_facts(analysis: Analysis) -> tuple[Fact, ...]:
    """Software and settings. Environment variables are those the collector lets through."""
    fingerprint = analysis.fingerprint
    return _known(
        ("torch", fingerprint.torch),
        ("CUDA", fingerprint.cuda),
        ("HIP", fingerprint.hip),
        ("Driver", fingerprint.driver),
        ("cuDNN", fingerprint.cudnn),
        ("NCCL", fingerprint.nccl),
        ("Triton", fingerprint.triton),
        ("Python", fingerprint.python),
        ("Platform", fingerprint.platform),
        ("CPU", fingerprint.cpu),
        ("CPU cores", fingerprint.cpu_cores),
        ("torch threads", fingerprint.torch_threads),
        ("float32 matmul precision", fingerprint.float32_matmul_precision),
        ("TF32 in matmul", _allowed(fingerprint.allow_tf32_matmul)),
        ("TF32 in cuDNN", _allowed(fingerprint.allow_tf32_cudnn)),
        *sorted(fingerprint.environment.items()),
    )


def state_facts(analysis: Analysis) -> tuple[Fact, ...]:
    """The device during the timed steps, as NVML sampled it."""
    facts = list(_nvml_facts(analysis.device_state)) if analysis.device_state else []
    if analysis.peak_memory_bytes is not None:
        peak = formatting.byte_count(analysis.peak_memory_bytes)
        facts.append(Fact("Peak memory", peak, "as torch's allocator counts it"))
    return tuple(facts)


def provenance_facts(analysis: Analysis) -> tuple[Fact, ...]:
    """Where the figures come from."""
    world = f"{analysis.rank} of {analysis.world_size}" if analysis.world_size > 1 else None
    return _known(
        ("Capture", analysis.title),
        ("Made by", f"{analysis.source}, gpuprof {analysis.tool_version}"),
        ("Made at", formatting.date(analysis.created_ns)),
        ("Command", " ".join(analysis.command) or None),
        ("Rank", world),
        ("Ended", analysis.ending),
        ("Exit code", analysis.exit_code),
        ("Analysis schema", f"version {analysis.schema_version}"),
    )


def _nvml_facts(state: DeviceState) -> tuple[Fact, ...]:
    clock = _megahertz(state.sm_clock_mhz_median)
    low, high = state.sm_clock_mhz_minimum, state.sm_clock_mhz_maximum
    if clock and low is not None and high is not None and low != high:
        clock = f"{clock}, {low} to {high} MHz"
    power = state.power_watts_median
    temperature = state.temperature_celsius_maximum
    throttled = ", ".join(state.throttle_reasons) if state.throttle_reasons else "no reason seen"
    return _known(
        ("Samples", state.samples),
        ("SM clock", clock),
        ("Power", None if power is None else f"{power:.0f} W"),
        ("Temperature, maximum", None if temperature is None else f"{temperature} °C"),
        ("Memory used, maximum", _bytes(state.memory_used_bytes_maximum)),
        ("Slowed down by", throttled if state.samples else None),
    )


def _known(*pairs: tuple[str, str | int | None]) -> tuple[Fact, ...]:
    return tuple(Fact(label, str(value)) for label, value in pairs if value is not None)


def _bytes(count: int | None) -> str | None:
    return None if count is None else formatting.byte_count(count)


def _megahertz(clock: int | None) -> str | None:
    return None if clock is None else f"{clock} MHz"


def _allowed(setting: bool | None) -> str | None:
    return None if setting is None else "allowed" if setting else "not allowed"


def launched_by(point: RooflinePoint) -> str:
    """The operator that launched a kernel; "" where none did or it is the point itself."""
    return point.op if point.op != point.name else ""


def per_step(analysis: Analysis, total: float) -> float:
    """`total` over the profiled steps as a mean for one step, where there were steps."""
    return total / analysis.steps.profiled if analysis.steps.profiled else total
