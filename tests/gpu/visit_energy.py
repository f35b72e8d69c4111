"""Joules a step of two programs against the device's own energy counter, read by the programs.

    python tests/gpu/visit_energy.py [--output FOLDER] [PROGRAM ...]

Each program runs under `gpuprof run` and reads, after the profiled steps, NVML's energy counter
around many more of the same steps. Exits 1 where joules a step differ by more than gpuprof says
that they may, and a tenth for what a device draws more when warm.
"""

import sys
from typing import Any

from programs import Seen, compare_all

WARMER = 0.1

SOURCE = """
import json, time, torch
import pynvml
import gpuprof

pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)
a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
out, source = (torch.empty(1 << 30, device="cuda", dtype=torch.uint8) for _ in range(2))

def steps(number):
    for _ in range(number):
        WORK
        torch.cuda.synchronize()
        gpuprof.step()

steps(20)
end = time.time() + 9
while time.time() < end:
    steps(20)
before, counted = pynvml.nvmlDeviceGetTotalEnergyConsumption(device), 0
end = time.time() + 3
while time.time() < end:
    steps(20)
    counted += 20
millijoules = pynvml.nvmlDeviceGetTotalEnergyConsumption(device) - before
print(json.dumps({"joules_per_step": millijoules / 1000 / counted}))
"""
PROGRAMS = {
    "products": SOURCE.replace("WORK", "for _ in range(20): a @ b"),
    "copies": SOURCE.replace("WORK", "for _ in range(20): out.copy_(source)"),
}


def seen_of(name: str, seen: Seen) -> tuple[list[str], str]:
    """What differs in one program, and both sides."""
    energy: dict[str, Any] | None = seen.analysis["energy"]
    if not energy:
        return ["no energy"], ""
    found, own = energy["joules_per_step"], seen.own["joules_per_step"]
    allowed = (energy["uncertainty"] + WARMER) * own
    wrong = [f"{found:.3f} J, not {own:.3f}"] if abs(found - own) > allowed else []
    return wrong, f"{found:.3f} J a step, own {own:.3f}, {energy}"


if __name__ == "__main__":
    sys.exit(compare_all(__doc__.splitlines()[0], PROGRAMS, seen_of))
