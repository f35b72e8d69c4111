"""What the device counted of long products, a long copy and a training step, beside arithmetic.

    python tests/gpu/visit_activity.py [--output FOLDER] [PROGRAM ...]

Needs Hopper or later, and takes about two minutes. Each program runs under `gpuprof run` and times
itself. DRAM activity is compared with the bytes of a copy that is much larger than L2 over its own
time, within 5 %, and the counters show the first copy no more than 0.2 s late. Tensor activity
counts cycles in which a tensor core does anything, so it is compared with the FLOPs of the products
over the peak at the clock that ran: no less, and no more than 1.2 times. Of products, of a training
step and of one with checkpoints OFU and MFU are reconciled: the parts add up, MFU and what is
recomputed are those of arithmetic, and what is left is within the uncertainty. Timed steps and the
largest kernel have a clock and power. Exits 1 where one differs.
"""

import statistics
import sys
from typing import Any

import polars as pl
from programs import Seen, compare_all

import gpuprof
from gpuprof.roofline.measured.windows import LATE_NS, windows_of

TOLERANCE = 0.05
ROUNDING = 1e-6
# Of the datasheet's peak of tensor cores.
PEAK_CLOCK_MHZ = 1830
ACTIVE_OF_NEEDED = (0.95, 1.2)

HEAD = """
import json, time, torch
import gpuprof
bf16 = torch.bfloat16

def steps(step, **own):
    end, marks = time.time() + 12, []
    while time.time() < end:
        step()
        gpuprof.step()
        marks.append(torch.cuda.Event(enable_timing=True))
        marks[-1].record()
        if len(marks) % 20 == 0:
            marks[-1].synchronize()
    torch.cuda.synchronize()
    half = marks[len(marks) // 2:]
    print(json.dumps({"step_ms": half[0].elapsed_time(half[-1]) / (len(half) - 1), **own}))
"""

PRODUCTS = """
a, b = (torch.randn(8192, 8192, device="cuda", dtype=bf16) for _ in range(2))
def step():
    for _ in range(4):
        torch.mm(a, b)
steps(step, flops=4 * 2 * 8192**3)
"""

COPY = """
a = torch.randn(1 << 30, device="cuda")
b = torch.empty_like(a)
def step():
    b.copy_(a)
steps(step, bytes=2 * 4 * (1 << 30))
"""

TRAINING = """
from torch import nn
class Block(nn.Module):
    def __init__(self, width=4096):
        super().__init__()
        self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, 32, -1).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(x)))
model = nn.Sequential(Block(), Block()).to("cuda", bf16)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
x = torch.randn(4, 2048, 4096, device="cuda", dtype=bf16)
def step():
    optimizer.zero_grad()
    model(x).float().square().mean().backward()
    optimizer.step()
steps(step)
"""

# Each block is computed again in the backward pass: its weights are twelve squares of the width,
# and attention multiplies twice over all pairs of tokens of a sequence, masked or not.
CHECKPOINTED = TRAINING
for old, new in (
    ("from torch import nn", "from torch import nn\nfrom torch.utils.checkpoint import checkpoint"),
    ("dtype=bf16)\ndef", "dtype=bf16).requires_grad_()\ndef"),
    (
        "    model(x).float()",
        "    y = x\n"
        "    for block in model:\n"
        "        y = checkpoint(block, y, use_reentrant=True)\n"
        "    y.float()",
    ),
    ("steps(step)", "steps(step, again=2 * (2 * 12 * 8192 * 4096**2 + 4 * 8192 * 2048 * 4096))"),
):
    assert old in CHECKPOINTED
    CHECKPOINTED = CHECKPOINTED.replace(old, new)

PROGRAMS = {
    "copy": COPY,
    "products": PRODUCTS,
    "training": TRAINING,
    "checkpointed": CHECKPOINTED,
}


def compared(name: str, seen: Seen) -> list[str]:
    """What differs, a line each."""
    found, own = seen.analysis["activity"], seen.own
    if not found or not found["windows"]:
        return [f"no window: {found}"]
    peaks = {
        (each["kind"], each["precision"] or each["level"]): each
        for each in seen.analysis["ceilings"]
        if each["source"] == "datasheet" and each["unit"] != "vector"
    }
    wrong = []
    if len(found["time_line"]) != found["windows"]:
        wrong.append(f"{len(found['time_line'])} windows on the time line")
    wrong += of_readings(seen.analysis)
    if name == "copy":
        expected = own["bytes"] / own["step_ms"] * 1e3 / peaks["memory", "DRAM"]["rate"]
        if abs(found["dram_active"] / expected - 1) > TOLERANCE:
            wrong.append(f"DRAM {found['dram_active']:.4f}, by arithmetic {expected:.4f}")
        late_ms = lateness_ms(seen)
        if not 0 <= late_ms <= LATE_NS / 1e6:
            wrong.append(f"the counters showed the first work {late_ms:.0f} ms late")
        return wrong
    wrong += of_utilization(found["reconciled"], own, peaks["compute", "bf16"]["rate"])
    if name == "products":
        least, most = ACTIVE_OF_NEEDED
        ratio = found["tensor_active"] / found["modelled_tensor"]
        if not least <= ratio <= most:
            wrong.append(f"tensor cores are active {ratio:.3f} times as long as needed")
    return wrong


def of_readings(analysis: dict[str, Any]) -> list[str]:
    """What is wrong with the clock and power beside kernels and steps."""
    wrong = []
    steps = sum(each["last_step"] - each["first_step"] + 1 for each in analysis["step_readings"])
    if steps != analysis["steps"]["timed"]:
        wrong.append(f"{steps} of {analysis['steps']['timed']} timed steps have a clock")
    largest = analysis["kernels"][0]
    reading = largest["reading"]
    if reading is None or None in (reading["sm_clock_mhz"], reading["power_watts"]):
        wrong.append(f"{largest['name']} has no clock and power: {reading}")
    elif largest["roof"].startswith("bf16") and largest["roof_fraction"] is not None:
        ratio = largest["roof_fraction"] / reading["roof_fraction"]
        if abs(ratio - reading["sm_clock_mhz"] / PEAK_CLOCK_MHZ) > ROUNDING:
            wrong.append(f"the roof at its clock is {1 / ratio:.4f} times the nominal share")
    return wrong


def of_utilization(found: dict[str, Any] | None, own: dict[str, float], peak: float) -> list[str]:
    """What is wrong with OFU beside MFU, and with its parts."""
    if found is None:
        return ["OFU and MFU are not compared"]
    wrong = []
    parts = sum(each["fraction"] for each in found["differences"]) + found["unexplained"]
    if abs(found["mfu"] + parts - found["ofu"]) > ROUNDING:
        wrong.append("the parts do not add up")
    if abs(found["unexplained"]) > found["uncertainty"]:
        wrong.append(f"{found['unexplained']:.1%} of the peak is not explained")
    if "flops" in own:
        expected = own["flops"] / own["step_ms"] * 1e3 / peak
        if abs(found["mfu"] / expected - 1) > TOLERANCE:
            wrong.append(f"MFU {found['mfu']:.4f}, by arithmetic {expected:.4f}")
    if "again" in own:
        expected = own["again"] / own["step_ms"] * 1e3 / peak
        again = [
            each["fraction"]
            for each in found["differences"]
            if each["reason"] == "recomputation of checkpointed activations"
        ]
        if not again or abs(again[0] / expected - 1) > TOLERANCE:
            wrong.append(f"recomputed {again}, by arithmetic {expected:.4f}")
    return wrong


def lateness_ms(seen: Seen) -> float:
    """How much later than the first step its DRAM traffic appeared in the counters."""
    capture = gpuprof.load(seen.capture)
    windows = windows_of(capture.samples).select("start_ns", "end_ns", "dram_active_percent")
    first_ns = capture.steps["device_start_ns"].drop_nulls().min()
    assert isinstance(first_ns, int)
    after = windows.filter(pl.col("end_ns") > first_ns).rows()
    # Those after the next two are of steady copies.
    steady = statistics.median(share for _, _, share in after[3:13])
    start_ns, end_ns, share = next(row for row in after if row[2] > steady / 50)
    shown_ns = end_ns - share / steady * (end_ns - start_ns)
    return float(shown_ns - first_ns) / 1e6


def seen_of(name: str, seen: Seen) -> tuple[list[str], str]:
    """What differs in one program, and both sides."""
    found = dict(seen.analysis["activity"] or {})
    windows = found.pop("time_line", [])
    told = f"own {seen.own}\n    {found}\n    first window {windows[:1]}"
    if name == "copy":
        told += f"\n    counters were {lateness_ms(seen):.0f} ms late"
    told += f"\n    largest kernel {seen.analysis['kernels'][0]['reading']}"
    warnings = [each for each in seen.analysis["warnings"] if "OFU" in each or "DRAM" in each]
    return compared(name, seen), f"{told}\n    {warnings}"


if __name__ == "__main__":
    sources = {name: HEAD + source for name, source in PROGRAMS.items()}
    sys.exit(compare_all(__doc__.splitlines()[0], sources, seen_of))
