"""The device, the software, the state during the timed steps, and where the figures come from."""

from collections.abc import Sequence

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Block, Columns, Fact, Facts, Paragraph
from gpuprof.reports.machine.health import health_facts
from gpuprof.reports.sections.section import Section, titled
from gpuprof.roofline.analysis import Analysis, DeviceState


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
    quota = fingerprint.cpu_quota_cores
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
        ("CPU governor", fingerprint.cpu_governor),
        ("CPU quota", None if quota is None else f"{quota:g} cores"),
        ("torch threads", fingerprint.torch_threads),
        ("float32 matmul precision", fingerprint.float32_matmul_precision),
        ("TF32 in matmul", _allowed(fingerprint.allow_tf32_matmul)),
        ("TF32 in cuDNN", _allowed(fingerprint.allow_tf32_cudnn)),
        *sorted((fingerprint.torch_settings or {}).items()),
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
    reasons = state.throttle_reasons
    throttled = None if reasons is None else ", ".join(reasons) or "no reason seen"
    return _known(
        ("Samples", state.samples),
        ("SM clock", clock),
        ("Power", None if power is None else f"{power:.0f} W"),
        ("Temperature, maximum", None if temperature is None else f"{temperature} °C"),
        ("Memory used, maximum", _bytes(state.memory_used_bytes_maximum)),
        ("PCIe link", _link(state)),
        ("Slowed down by", throttled),
    )


def _link(state: DeviceState) -> str | None:
    if state.pcie_generation is None or state.pcie_width is None:
        return None
    return f"generation {state.pcie_generation} x{state.pcie_width}"


def _known(*pairs: tuple[str, str | int | None]) -> tuple[Fact, ...]:
    return tuple(Fact(label, str(value)) for label, value in pairs if value is not None)


def _bytes(count: int | None) -> str | None:
    return None if count is None else formatting.byte_count(count)


def _megahertz(clock: int | None) -> str | None:
    return None if clock is None else f"{clock} MHz"


def _allowed(setting: bool | None) -> str | None:
    return None if setting is None else "allowed" if setting else "not allowed"


def _body(analysis: Analysis) -> Sequence[Block]:
    software, state = environment_facts(analysis), state_facts(analysis)
    absent = "No samples: NVML was not there or did not answer."
    return (
        Columns(
            (
                (Facts(device_facts(analysis), "Device"), *_health(analysis)),
                (_or_absent("Software and settings", software, "Nothing was recorded."),),
                (
                    _or_absent("Device state during the timed steps", state, absent),
                    Facts(provenance_facts(analysis), "Provenance"),
                ),
            )
        ),
    )


def _health(analysis: Analysis) -> tuple[Block, ...]:
    if analysis.health is None:
        return ()
    return (Facts(health_facts(analysis.health), "Health at the end of the run"),)


def _or_absent(title: str, facts: tuple[Fact, ...], absent: str) -> Block:
    return Facts(facts, title) if facts else Paragraph(f"{title}: {absent}", "absent")


SECTION = Section(
    key="machine",
    title=titled("Machine"),
    fields=(
        "device",
        "fingerprint",
        "device_state",
        "health",
        "peak_memory_bytes",
        "source",
        "tool_version",
        "schema_version",
        "created_ns",
        "command",
        "schedule",
    ),
    body=_body,
)
