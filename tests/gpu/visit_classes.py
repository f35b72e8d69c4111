"""Programs of which it is known what holds them back: does gpuprof say so, and by how much?

    python tests/gpu/visit_classes.py [--output FOLDER] [PROGRAM ...]

Each program runs under `gpuprof run` as a person would start it. It times its step and parts by
CUDA events of its own: a queue that the host fills before the device begins, so that nothing waits
in between. Compared are the class of the step's largest loss, or of the main operator's point, and
the parts of the split with the events. Exits 1 where one differs.
"""

import sys
from dataclasses import dataclass
from typing import Any

from programs import Seen, compare_all

# Of the step: what the split may differ from the events.
TOLERANCE = 0.05

HEAD = """
import json, sys, time, torch
import gpuprof
torch.manual_seed(0)
cuda, bf16 = "cuda", torch.bfloat16
# So that one launch of the host more does not matter to what the device is asked to do.
CYCLES = 20_000_000

def alone_ms(work, repeats=7):
    \"\"\"Device time of `work` with nothing to wait for, the median of some.\"\"\"
    took = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(CYCLES)
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        took.append(start.elapsed_time(end))
    return sorted(took)[repeats // 2]

def steps(step, seconds=8, **parts):
    \"\"\"Run `step` as a loop, and print the length of its last third and of its parts alone.\"\"\"
    events, end = [], time.time() + seconds
    while time.time() < end or len(events) < 60:
        step()
        gpuprof.step()
        events.append(torch.cuda.Event(enable_timing=True))
        events[-1].record()
        # As programs do that log their loss now and then: the host is never far ahead.
        if len(events) % 20 == 0:
            events[-1].synchronize()
    torch.cuda.synchronize()
    last = events[len(events) * 2 // 3:]
    own = {"step": last[0].elapsed_time(last[-1]) / (len(last) - 1)}
    for _ in range(20):
        step()
    own |= {name: alone_ms(work) for name, work in parts.items()}
    print(json.dumps(own))
"""

COMPUTE = """
a, b = (torch.randn(8192, 8192, device=cuda, dtype=bf16) for _ in range(2))
def step():
    for _ in range(4):
        a @ b
steps(step, busy=step)
"""

DRAM = """
tensors = [torch.randn(1 << 28, device=cuda) for _ in range(4)]
def step():
    for tensor in tensors:
        tensor.mul_(1.0001)
steps(step, busy=step)
"""

L2 = """
small = torch.randn(3 << 20, device=cuda)
def step():
    for _ in range(400):
        small.mul_(1.0001)
# The host needs about 3 us a launch, the device little more: a product first, so that the device
# never waits.
a, b = (torch.randn(8192, 8192, device=cuda, dtype=bf16) for _ in range(2))
def with_a_lead():
    a @ b
    step()
steps(with_a_lead, busy=with_a_lead)
"""

LAUNCH = """
tiny = torch.randn(64, device=cuda)
def step():
    for _ in range(400):
        tiny.mul_(1.0001)
steps(step, busy=step)
"""

FEW_BLOCKS = """
rows = torch.randn(8, 1 << 20, device=cuda)
def step():
    for _ in range(10):
        torch.cumsum(rows, 1)
steps(step, busy=step)
"""

TAIL = """
# 140 blocks of 128 queries, on 132 multiprocessors.
from torch.nn.attention import SDPBackend, sdpa_kernel
q, k, v = (torch.randn(1, 1, 140 * 128, 128, device=cuda, dtype=bf16) for _ in range(3))
def step():
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        for _ in range(10):
            torch.nn.functional.scaled_dot_product_attention(q, k, v)
steps(step, busy=step)
"""

FP32 = """
torch.backends.cuda.matmul.allow_tf32 = False
a, b = (torch.randn(4096, 4096, device=cuda) for _ in range(2))
def step():
    for _ in range(4):
        a @ b
steps(step, busy=step)
"""

PAGEABLE = """
host, device = torch.randn(1 << 24), torch.empty(1 << 24, device=cuda)
a, b = (torch.randn(4096, 4096, device=cuda, dtype=bf16) for _ in range(2))
def step():
    device.copy_(host)
    a @ b
def copy():
    device.copy_(host)
steps(step, busy=step)
"""

PINNED = """
host, device = torch.randn(1 << 24).pin_memory(), torch.empty(1 << 24, device=cuda)
a, b = (torch.randn(4096, 4096, device=cuda, dtype=bf16) for _ in range(2))
def copy():
    device.copy_(host, non_blocking=True)
def step():
    copy()
    a @ b
steps(step, busy=step, copy=copy)
"""

HIDDEN = """
host, device = torch.randn(1 << 23).pin_memory(), torch.empty(1 << 23, device=cuda)
a, b = (torch.randn(8192, 8192, device=cuda, dtype=bf16) for _ in range(2))
side = torch.cuda.Stream()
def products():
    for _ in range(4):
        a @ b
def step():
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        device.copy_(host, non_blocking=True)
    products()
    torch.cuda.current_stream().wait_stream(side)
steps(step, busy=step, products=products)
"""


@dataclass(frozen=True)
class Program:
    """A program and the class that holds it back."""

    source: str
    # Of the step, one of these; none where that is not looked at.
    expected: tuple[str, ...]
    # Of the point with most device time, likewise.
    point: tuple[str, ...] = ()
    # The split's part "copy", by the program's own copy; None where there must be none to speak of.
    copies: str | None = None
    # False where the device waits for its host, which queues work or copies from pageable memory.
    device_bound: bool = True


# At its power limit a card lowers its clock, and then that may be what most of the loss comes from.
PRODUCTS = ("compute", "clock")

PROGRAMS = {
    "compute": Program(COMPUTE, PRODUCTS, PRODUCTS),
    "dram": Program(DRAM, ("memory",), ("memory",)),
    "l2": Program(L2, (), ("cache",)),
    "launch": Program(LAUNCH, ("launch",), device_bound=False),
    "few_blocks": Program(FEW_BLOCKS, ("few-blocks",), ("few-blocks",)),
    "tail": Program(TAIL, ("tail",), ("tail",)),
    "fp32": Program(FP32, ("no-tensor",), ("no-tensor",)),
    "pageable": Program(PAGEABLE, ("copy",), copies="step", device_bound=False),
    "pinned": Program(PINNED, ("copy",), copies="copy"),
    "hidden": Program(HIDDEN, PRODUCTS, PRODUCTS),
}


def compared(program: Program, analysis: dict[str, Any], own: dict[str, float]) -> list[str]:
    """What differs, a line each."""
    split = analysis["split"]
    parts = {part["kind"]: part["nanoseconds"] / 1e6 for part in split["parts"]}
    step_ms = analysis["steps"]["median_ns"] / 1e6
    # The program times its last steps; where those are unlike the timed ones, a warning says so.
    last_ms = (analysis["steps"]["later_median_ns"] or analysis["steps"]["median_ns"]) / 1e6
    wrong = []
    verdict = (analysis["bottleneck"] or {}).get("kind")
    if program.expected and verdict not in program.expected:
        wrong.append(f"the step is {verdict}, not {' or '.join(program.expected)}")
    largest = max(analysis["kernels"], key=lambda point: point["device_ns"])
    point = (largest["bottleneck"] or {}).get("kind")
    if program.point and point not in program.point:
        wrong.append(f"{largest['name'][:40]} is {point}, not {' or '.join(program.point)}")
    allowed_ms = TOLERANCE * own["step"]
    figures = {"step": (last_ms, own["step"])}
    idle_ms = analysis["idle"]["nanoseconds"] / 1e6
    if program.device_bound:
        # What its work takes alone is shorter where the clock is higher after a pause.
        figures["waiting"] = (idle_ms, 0.0)
    elif program.copies is None and not step_ms - own["busy"] - allowed_ms <= idle_ms <= step_ms:
        wrong.append(f"waiting {idle_ms:.3f} ms, by events {step_ms - own['busy']:.3f} or more")
    if program.copies is None:
        figures["exposed copies"] = (parts.get("copy", 0.0), 0.0)
    elif program.copies in own and program.copies != "step":
        figures["exposed copies"] = (parts.get("copy", 0.0), own[program.copies])
    for name, (found, expected) in figures.items():
        if abs(found - expected) > allowed_ms:
            wrong.append(f"{name} {found:.3f} ms, by events {expected:.3f}")
    return wrong


def seen_of(name: str, seen: Seen) -> tuple[list[str], str]:
    """What differs in one program, and both sides."""
    parts = {
        part["kind"]: round(part["nanoseconds"] / 1e6, 3)
        for part in seen.analysis["split"]["parts"]
        if part["nanoseconds"]
    }
    told = f"own {seen.own}, split {parts}, {seen.analysis['bottleneck']['evidence']}"
    return compared(PROGRAMS[name], seen.analysis, seen.own), told


if __name__ == "__main__":
    sources = {name: HEAD + program.source for name, program in PROGRAMS.items()}
    sys.exit(compare_all(__doc__.splitlines()[0], sources, seen_of))
