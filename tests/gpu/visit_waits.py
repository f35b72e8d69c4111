"""Programs that wait for a known reason: does gpuprof name it, and how long it waits?

    python tests/gpu/visit_waits.py [--output FOLDER] [PROGRAM ...]

Each program runs under `gpuprof run` as a person would start it, and measures by itself how long a
step is with the trouble and without it. Compared are the cause that costs most, what is named, the
line, and the gain with the difference of the two. Exits 1 where one differs.

The programs named short make 60 steps, and end before any but their first ones are profiled.
"""

import sys
from dataclasses import dataclass, replace
from typing import Any

from programs import Seen, compare_all

# Of the step: what the cause's time may be away from the difference of the two.
TOLERANCE = 0.15

HEAD = """
import json, sys, time, torch
import gpuprof
torch.manual_seed(0)
cuda, bf16 = "cuda", torch.bfloat16
a, b = (torch.randn(8192, 8192, device=cuda, dtype=bf16) for _ in range(2))
tiny = torch.randn(64, device=cuda)

def products(number=4):
    for _ in range(number):
        a @ b

def many_small(number=300):
    for _ in range(number):
        tiny.mul_(1.0001)

def length_ms(step, seconds):
    \"\"\"How long one of many steps is at the end.\"\"\"
    lengths, end = [], time.time() + seconds
    while time.time() < end or len(lengths) < 30:
        begun = time.perf_counter()
        for _ in range(5):
            step()
        torch.cuda.synchronize()
        lengths.append((time.perf_counter() - begun) / 5 * 1e3)
    last = sorted(lengths[len(lengths) // 2:])
    return last[len(last) // 2]

def steps(step, without, seconds=SECONDS):
    \"\"\"Run `step` as a program's loop, then it and `without` again for their lengths.\"\"\"
    end, count = time.time() + seconds, 0
    while time.time() < end or count < 60:
        step()
        gpuprof.step()
        count += 1
        if count % 20 == 0:
            torch.cuda.synchronize()
    print(json.dumps({"with": length_ms(step, 1.5), "without": length_ms(without, 1.5)}))
"""

# The host is ahead by 20 ms of products when it asks for a result, and then launches small work.
ITEM = """
def step():
    products()
    tiny.sum().item()  # here
    many_small()
def without():
    products()
    tiny.sum()
    many_small()
steps(step, without)
"""

LAUNCHES = """
def step():
    many_small(400)  # a line of its own is in many_small
step()
graph = torch.cuda.CUDAGraph()
def without():
    graph.replay()
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    step()
torch.cuda.synchronize()
with torch.cuda.graph(graph):
    step()
steps(step, without)
"""

LOADER = """
from torch.utils.data import DataLoader, Dataset
class Slow(Dataset):
    def __len__(self):
        return 1 << 30
    def __getitem__(self, index):
        end = time.perf_counter() + 0.001
        while time.perf_counter() < end:
            pass
        return torch.ones(8)
batches = iter(DataLoader(Slow(), batch_size=8))
def step():
    next(batches)  # here
    many_small(20)
def without():
    many_small(20)
steps(step, without)
"""

SLEEP = """
def step():
    many_small(20)
    with torch.cuda.nvtx.range("load data"):  # here
        time.sleep(0.008)
def without():
    many_small(20)
steps(step, without)
"""

PYTHON = """
def step():
    many_small(20)
    sum(range(400_000))  # here
def without():
    many_small(20)
steps(step, without)
"""

ALLOCATOR = """
def step():
    many_small(20)
    kept = [torch.empty(1 << 26, device=cuda) for _ in range(8)]  # here
    for each in kept:
        each.view(-1)[:8].add_(1)
    del kept, each
    torch.cuda.empty_cache()  # here
kept_always = [torch.empty(1 << 26, device=cuda) for _ in range(8)]
def without():
    many_small(20)
    for each in kept_always:
        each.view(-1)[:8].add_(1)
steps(step, without)
"""

PAGEABLE = """
# Small enough for the driver to stage: the call is done when the data is on its way.
host = torch.randn(1 << 22)
pinned = host.pin_memory()
there = torch.empty(1 << 22, device=cuda)
def step():
    many_small(5)
    there.copy_(host)  # here
def without():
    many_small(5)
    there.copy_(pinned, non_blocking=True)
steps(step, without)
"""

GARBAGE = """
import gc
kept = [[{} for _ in range(10)] for _ in range(60_000)]
def step():
    many_small(20)
    gc.collect()  # here
def without():
    many_small(20)
steps(step, without)
"""

RECOMPILES = """
lengths = iter(range(64, 1 << 20, 8))
@torch.compile(dynamic=False, backend="eager")  # here
def work(values):
    return torch.relu(values) + 1
torch._dynamo.config.cache_size_limit = torch._dynamo.config.recompile_limit = 1 << 20
torch._dynamo.config.accumulated_cache_size_limit = 1 << 20
fixed = torch.ones(64, device=cuda)
def step():
    work(torch.ones(next(lengths), device=cuda))
def without():
    torch.relu(fixed) + 1
steps(step, without)
"""

PLANS = """
from torch.nn.attention import SDPBackend, sdpa_kernel
lengths = iter(range(64, 1 << 20))
q = torch.randn(1, 8, 1, 128, device=cuda, dtype=bf16)
store = torch.randn(1, 8, 1 << 17, 128, device=cuda, dtype=bf16)
def attend(length):
    kept = store[:, :, :length]
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        torch.nn.functional.scaled_dot_product_attention(q, kept, kept)  # here
def step():
    attend(next(lengths))
def without():
    attend(64)
steps(step, without)
"""

HEALTHY = """
def step():
    products(8)
    many_small(10)
steps(step, step)
"""


@dataclass(frozen=True)
class Program:
    """A program, and the cause and culprit that are right; "" where it waits for nothing."""

    source: str
    cause: str
    named: str = ""
    # For how long it makes steps, 60 at least.
    seconds: int = 12

    @property
    def text(self) -> str:
        """The whole script."""
        return HEAD.replace("SECONDS", str(self.seconds)) + self.source


PROGRAMS = {
    "item": Program(ITEM, "synchronisation", ".item()"),
    "launches": Program(LAUNCHES, "launch", "aten::mul_"),
    "loader": Program(LOADER, "data loader", "DataLoader"),
    "sleep": Program(SLEEP, "host work", "load data"),
    "python": Program(PYTHON, "host work", "Python between operators"),
    "allocator": Program(ALLOCATOR, "allocator", "cuda"),
    "pageable": Program(PAGEABLE, "blocking copy", "cudaMemcpyAsync"),
    "garbage": Program(GARBAGE, "garbage collection", "garbage collection"),
    "recompiles": Program(RECOMPILES, "compilation", "work"),
    "plans": Program(PLANS, "compilation", "cudnn"),
    "healthy": Program(HEALTHY, ""),
}
# Of the others not each step does what they wait for.
for name in ("item", "launches", "loader", "sleep", "python", "pageable", "healthy"):
    PROGRAMS[f"short-{name}"] = replace(PROGRAMS[name], seconds=0)


def compared(program: Program, analysis: dict[str, Any], own: dict[str, float]) -> list[str]:
    """What differs, a line each."""
    causes = analysis["idle"]["causes"]
    step_ms = analysis["steps"]["median_ns"] / 1e6
    if not program.cause:
        waits_ms = analysis["idle"]["nanoseconds"] / 1e6
        return [] if waits_ms <= 0.01 * step_ms else [f"waits {waits_ms:.3f} ms of {step_ms:.3f}"]
    worst = causes[0]
    if worst["kind"] != program.cause:
        return [f"the cause is {worst['kind']}, not {program.cause}"]
    wrong = []
    culprit = worst["culprits"][0]
    if program.named not in culprit["what"]:
        wrong.append(f"{culprit['what']} is named, not {program.named}")
    lines = [
        number
        for number, line in enumerate(program.text.splitlines(), 1)
        if line.endswith("# here")
    ]
    if lines and not any(culprit["place"].endswith(f":{line}") for line in lines):
        wrong.append(f"its place is {culprit['place'] or 'unknown'}, not line {lines}")
    # Of its own length at the end and the timed one, the step that the cause is of.
    found_ms, gain_ms = worst["nanoseconds"] / 1e6, step_ms - own["without"]
    if abs(found_ms - gain_ms) > TOLERANCE * step_ms:
        wrong.append(f"costs {found_ms:.3f} ms, and the step is {gain_ms:.3f} shorter without")
    return wrong


def told(analysis: dict[str, Any], own: dict[str, float]) -> str:
    """Both sides on a line."""
    causes = {
        cause["kind"]: [
            round(cause[key] / 1e6, 3) for key in ("nanoseconds", "least_ns", "most_ns")
        ]
        for cause in analysis["idle"]["causes"]
    }
    return (
        f"own {own}, step {analysis['steps']['median_ns'] / 1e6:.3f}, causes {causes}, "
        f"{analysis['bottleneck']['evidence']}"
    )


def seen_of(name: str, seen: Seen) -> tuple[list[str], str]:
    """What differs in one program, and both sides."""
    return compared(PROGRAMS[name], seen.analysis, seen.own), told(seen.analysis, seen.own)


if __name__ == "__main__":
    sources = {name: program.text for name, program in PROGRAMS.items()}
    sys.exit(compare_all(__doc__.splitlines()[0], sources, seen_of))
