"""The line that `gpuprof run` keeps on a terminal while the program runs."""

from dataclasses import dataclass
from typing import Final

from gpuprof.reports.formatting import duration, percent

_PHASES: Final = {
    "starting": "before torch is imported",
    "searching": "looking for steps",
    "warmup": "warm-up",
    "timed": "timing",
    "profiled": "profiling",
    "dropped": "waiting for another profiler",
    "later": "after the profile",
    "done": "no longer watching",
    "storing": "analysing",
}
# A profiled step is longer than it is without the profiler.
_WITHOUT_STEP_TIME: Final = ("profiled", "storing")
_BETWEEN: Final = " · "


@dataclass(frozen=True)
class LiveLine:
    """What there is to show; None for what is unknown."""

    phase: str
    elapsed_s: float
    # Since the first step, and of this phase with how many it takes.
    steps: int
    steps_of_phase: int
    planned_steps: int | None = None
    step_ns: float | None = None
    mfu: float | None = None
    device: int | None = None
    sm_clock_mhz: int | None = None
    power_milliwatts: int | None = None


def live_line(line: LiveLine) -> str:
    """`line` in words, what matters most first: a narrow terminal cuts the end."""
    parts = [f"gpuprof {_clock(line.elapsed_s)}", _phase(line)]
    if line.steps:
        parts.append(f"step {line.steps}")
    if line.phase not in _WITHOUT_STEP_TIME:
        if line.step_ns is not None:
            parts.append(f"{duration(line.step_ns)} a step")
        if line.mfu is not None:
            parts.append(f"MFU {percent(line.mfu)}")
    device = [] if line.device is None else [f"GPU {line.device}"]
    if line.sm_clock_mhz is not None:
        device.append(f"{line.sm_clock_mhz} MHz")
    if line.power_milliwatts is not None:
        device.append(f"{line.power_milliwatts / 1000:.0f} W")
    if line.sm_clock_mhz is not None or line.power_milliwatts is not None:
        parts.append(" ".join(device))
    return _BETWEEN.join(parts)


def _phase(line: LiveLine) -> str:
    words = _PHASES[line.phase]
    planned = line.planned_steps
    if planned is None or not 0 < line.steps_of_phase <= planned:
        return words
    return f"{words} {line.steps_of_phase}/{planned}"


def _clock(seconds: float) -> str:
    """Minutes and seconds: "0:07", "1:02:03"."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"
