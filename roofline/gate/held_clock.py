"""Whether somebody's setting held a GPU's clock during the timed steps.

NVML tells application clocks (they are in the fingerprint) but has no call that tells whether
`nvidia-smi --lock-gpu-clocks` is in force. Its effect shows: a working GPU that nothing slows down
runs at its highest clock, so one that stays at a lower clock all the time is held there.
"""

from gpuprof.roofline.analysis import Analysis

# Fewer may agree by chance.
_FEWEST_SAMPLES = 3


def held_clock_mhz(analysis: Analysis) -> int | None:
    """The SM clock that was held during the timed steps; None where none was, or nothing tells."""
    state, device = analysis.device_state, analysis.device
    if state is None or device is None or state.samples < _FEWEST_SAMPLES:
        return None
    clock_mhz, highest_mhz = state.sm_clock_mhz_maximum, device.maximum_sm_clock_mhz
    if clock_mhz is None or highest_mhz is None or state.throttle_reasons != ():
        return None
    steady = state.sm_clock_mhz_minimum == clock_mhz
    return clock_mhz if steady and clock_mhz < highest_mhz else None
