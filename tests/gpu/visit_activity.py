"""What the device counted of long products, a long copy and a training step, beside arithmetic.

    python tests/gpu/visit_activity.py [--output FOLDER] [PROGRAM ...]

Needs Hopper or later. Each program runs under `gpuprof run` and times itself. DRAM activity is
compared with the bytes of a copy that is much larger than L2 over its own time, within 5 %. Tensor
activity counts cycles in which a tensor core does anything, so it is compared with the FLOPs of the
products over the peak at the clock that ran: no less, and no more than 1.2 times. Of a training
step the two sides agree so, or a reason is named. Exits 1 where one differs.
"""

import sys
from typing import Any

from programs import Seen, compare_all

TOLERANCE = 0.05
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

PROGRAMS = {"products": PRODUCTS, "copy": COPY, "training": TRAINING}


def compared(name: str, analysis: dict[str, Any], own: dict[str, float]) -> list[str]:
    """What differs, a line each."""
    found = analysis["activity"]
    if not found or not found["windows"]:
        return [f"no window: {found}"]
    if name == "training":
        least, most = ACTIVE_OF_NEEDED
        active = found["tensor_active"]
        agrees = least * found["modelled_tensor"] <= active <= most * found["modelled_tensor_full"]
        return [] if agrees or found["tensor_reason"] else ["tensor activity has no reason"]
    peaks = {
        (each["kind"], each["precision"] or each["level"]): each
        for each in analysis["ceilings"]
        if each["source"] == "datasheet" and each["unit"] != "vector"
    }
    step_s = own["step_ms"] / 1e3
    if name == "products":
        peak = peaks["compute", "bf16"]
        rate = peak["rate"] * found["clock_mhz"] / peak["clock_mhz"]
        measured, expected = found["tensor_active"], own["flops"] / step_s / rate
        least, most = ACTIVE_OF_NEEDED
    else:
        measured = found["dram_active"]
        expected = own["bytes"] / step_s / peaks["memory", "DRAM"]["rate"]
        least, most = 1 - TOLERANCE, 1 + TOLERANCE
    if least <= measured / expected <= most:
        return []
    return [f"counted {measured:.4f}, by arithmetic {expected:.4f}"]


def seen_of(name: str, seen: Seen) -> tuple[list[str], str]:
    """What differs in one program, and both sides."""
    told = f"own {seen.own}, {seen.analysis['activity']}"
    return compared(name, seen.analysis, seen.own), told


if __name__ == "__main__":
    sources = {name: HEAD + source for name, source in PROGRAMS.items()}
    sys.exit(compare_all(__doc__.splitlines()[0], sources, seen_of))
