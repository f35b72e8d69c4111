"""What gpuprof makes of steps that are not all alike, on a GPU, beside a count and a clock by hand.

    python tests/gpu/visit_steps.py [--output FOLDER]

Each program below runs under `gpuprof run` as a person would start it. It prints its own figures,
counted by formula and timed by its own CUDA events; they share nothing with gpuprof. Exits 1 where
one of gpuprof's figures is not what the program's own say.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import polars as pl
from programs import Seen, run_program

# NVIDIA H200 SXM: dense bf16, from the datasheet.
PEAK_FLOPS = 989.4e12

HEAD = """
import json, time, torch
from torch import nn
torch.manual_seed(0)
cuda, bf16 = "cuda", torch.bfloat16

class Timed:
    def __init__(self):
        self.events = [self.event()]
    def event(self):
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event
    def mark(self):
        self.events.append(self.event())
    def lengths_ms(self):
        torch.cuda.synchronize()
        return [a.elapsed_time(b) for a, b in zip(self.events, self.events[1:])]

def median(values):
    return sorted(values)[len(values) // 2]
"""

RAGGED = """
width, layers, lengths = 4096, 8, [512, 1024, 2048, 4096, 8192]
model = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers))).to(cuda, bf16)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
timed, order = Timed(), []
for index in range(400):
    tokens = lengths[(index * 3) % 5]
    model(torch.randn(tokens, width, device=cuda, dtype=bf16)).float().pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    timed.mark()
    order.append(tokens)
# The median of each length: what disturbs some steps is not in it.
took = timed.lengths_ms()
typical = {n: median([ms for ms, of in zip(took, order) if of == n]) for n in lengths}
# The first layer needs no gradient of its input.
flops = {n: 2 * n * width * width * (3 * layers - 1) for n in lengths}
each = {n: flops[n] / typical[n] * 1e3 for n in lengths}
print(json.dumps({"least": min(each.values()), "most": max(each.values()),
                  "all": sum(flops.values()) / sum(typical.values()) * 1e3}))
"""

REPLAYS = """
model = nn.Sequential(*(nn.Linear(4096, 4096) for _ in range(8))).to(cuda, bf16)
x = torch.randn(512, 4096, device=cuda, dtype=bf16)
with torch.no_grad():
    model(x)
    time.sleep(0.3)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(x)
    timed = Timed()
    for _ in range(3000):
        graph.replay()
        timed.mark()
print(json.dumps({"step_ms": median(timed.lengths_ms()[1000:])}))
"""

GAN = """
def net():
    return nn.Sequential(*(nn.Linear(4096, 4096) for _ in range(4))).to(cuda, bf16)
critic, generator = net(), net()
of_critic = torch.optim.Adam(critic.parameters(), fused=True)
of_generator = torch.optim.AdamW(generator.parameters(), fused=True)
x = torch.randn(4096, 4096, device=cuda, dtype=bf16)
timed = Timed()
for _ in range(500):
    for _ in range(5):
        critic(x).float().mean().backward()
        of_critic.step()
        of_critic.zero_grad()
    generator(x).float().mean().backward()
    of_generator.step()
    of_generator.zero_grad()
    timed.mark()
print(json.dumps({"step_ms": median(timed.lengths_ms()[350:])}))
"""

SPARSE = """
size = 8192
dense = torch.rand(size, size, device=cuda)
matrix = torch.where(dense < 0.01, dense, 0).to_sparse_csr()
right = torch.randn(size, 512, device=cuda)
class Model(nn.Module):
    def forward(self):
        return matrix @ right
model = Model()
with torch.no_grad():
    for _ in range(400):
        model()
print(json.dumps({"dense_flops": 2 * size * size * 512}))
"""

VMAP = """
batch, size = 64, 512
left = torch.randn(batch, size, size, device=cuda, dtype=bf16)
right = torch.randn(size, size, device=cuda, dtype=bf16)
class Model(nn.Module):
    def forward(self):
        return torch.vmap(lambda one: one @ right)(left)
model = Model()
with torch.no_grad():
    for _ in range(2000):
        model()
print(json.dumps({"flops": 2 * batch * size**3}))
"""

CHECKPOINTED = """
from torch.utils.checkpoint import checkpoint
width, layers, tokens = 4096, 6, 4096
model = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(layers)).to(cuda, bf16)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
x = torch.randn(tokens, width, device=cuda, dtype=bf16, requires_grad=True)
for _ in range(200):
    y = x
    for layer in model:
        y = checkpoint(lambda value, layer=layer: torch.relu(layer(value)), y, use_reentrant=False)
    y.float().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
product = 2 * tokens * width * width
print(json.dumps({"model_flops": 3 * layers * product, "again": layers * product}))
"""

MUON = """
width, tokens = 2048, 8192
layer = nn.Linear(width, width, bias=False).to(cuda, bf16)
class NewtonSchulz(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {})
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                g = p.grad / p.grad.norm()
                for _ in range(5):
                    a = g @ g.T
                    g = 1.5 * g - 0.5 * a @ g
                p.add_(g, alpha=-1e-3)
optimizer = NewtonSchulz(layer.parameters())
x = torch.randn(tokens, width, device=cuda, dtype=bf16)
for _ in range(1000):
    layer(x).float().pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
product = 2 * tokens * width * width
print(json.dumps({"model_flops": 2 * product, "optimizer_flops": 10 * 2 * width**3}))
"""


Check = Callable[[Seen], tuple[bool, str]]


def close(value: float, expected: float, tolerance: float) -> bool:
    return abs(value / expected - 1) <= tolerance


def ragged(seen: Seen) -> tuple[bool, str]:
    """Of the profiled steps themselves: between the shares of the shortest and the longest."""
    use, own = seen.analysis["utilization"], {k: v / PEAK_FLOPS for k, v in seen.own.items()}
    text = f"truth {own['least']:.3f} to {own['most']:.3f}, of all {own['all']:.3f}"
    if use is None or use["mfu"] is None:
        return True, f"unknown, {text}"
    # The profiler stretches their time, so the share may lie below.
    fits = use["basis"] != "timed" and 0.5 * own["least"] < use["mfu"] < 1.02 * own["most"]
    return fits, f"{use['basis']} {use['mfu']:.3f}, {text}"


def same_step(seen: Seen) -> tuple[bool, str]:
    steps = seen.analysis["steps"]
    found = (steps["median_ns"] or 0) / 1e6
    text = f"{steps['found_by']}: {found:.4f} ms, own {seen.own['step_ms']:.4f}"
    return close(found, seen.own["step_ms"], 0.03), text


def no_products(seen: Seen) -> tuple[bool, str]:
    use = seen.analysis["utilization"]
    names = [op["name"] for op in seen.analysis["coverage"]["unmodelled"]][:3]
    return use is None and bool(names), f"utilization {use is not None}, without a model {names}"


def counted(seen: Seen) -> tuple[bool, str]:
    use = seen.analysis["utilization"] or {}
    expected = {
        "model_flops": seen.own.get("model_flops", seen.own.get("flops")),
        "optimizer_flops": seen.own.get("optimizer_flops", 0),
        "checkpointed_flops": seen.own.get("again", 0),
    }
    found = {name: use.get(name) for name in expected}
    return found == expected, f"{found}, own {expected}"


def anchored(seen: Seen) -> tuple[bool, str]:
    """No timed step begins on the device before the last one ended, and the clock is a busy one.

    Steps are read in batches while the device settles: between two batches it may wait a step.
    """
    steps = pl.read_parquet(seen.capture / "rank=0" / "steps.parquet")
    timed = steps.filter(pl.col("phase") == "timed").sort("device_start_ns")
    ends = (timed["device_start_ns"] + timed["device_ns"]).to_list()
    gaps = [b - a for a, b in zip(ends, timed["device_start_ns"].to_list()[1:], strict=False)]
    longest_ns = max(timed["device_ns"].to_list())
    state = seen.analysis["device_state"]
    clock = state and state["sm_clock_mhz_median"]
    meets = bool(gaps) and -5_000 < min(gaps) and max(gaps) < longest_ns
    fits = meets and bool(clock) and clock > 1000
    return fits, f"gaps of {min(gaps)} to {max(gaps)} ns, {clock} MHz"


PROGRAMS: dict[str, tuple[str, Check]] = {
    "ragged": (RAGGED, ragged),
    "anchored": (RAGGED, anchored),
    "replays": (REPLAYS, same_step),
    "gan": (GAN, same_step),
    "sparse": (SPARSE, no_products),
    "vmap": (VMAP, counted),
    "checkpointed": (CHECKPOINTED, counted),
    "optimizer": (MUON, counted),
}


def main() -> int:
    """Run all programs and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", default=list(PROGRAMS))
    parser.add_argument("--output", type=Path, help="keep summaries and captures here")
    arguments = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.output or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in arguments.programs:
            source, check = PROGRAMS[name]
            try:
                fits, text = check(run_program(name, HEAD + source, folder))
            except (RuntimeError, subprocess.TimeoutExpired, OSError, KeyError) as error:
                fits, text = False, f"{type(error).__name__}: {error}"
            wrong += not fits
            print(f"{'ok' if fits else 'WRONG':6} {name:14} {text}", flush=True)
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
