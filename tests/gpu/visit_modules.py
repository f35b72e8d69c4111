"""Lines and modules on a GPU: is each operator where the program calls it?

    python tests/gpu/visit_modules.py [plain|checkpointed|compiled|replayed ...]

A training step runs under `gpuprof run`, plain, with checkpoints, compiled, and compiled with CUDA
graphs. On a GPU autograd has a thread of its own, so what it runs has no Python around it. Checked
are the lines of products, forward and backward; that what a checkpoint repeats there is unknown and
not wrong; that torch.compile compiled no more because of it, and that each kernel that it generated
(Triton, on a CPU C++) has operators of the block it is in. Exits 1 where one differs.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import polars as pl
from programs import run_program

import gpuprof
from gpuprof.collectors.kernel_origins import decode_origins

PROGRAM = """
import json, os, time
# Of a graph that torch has in a cache no code is generated.
os.environ |= {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}
import torch
from torch.utils.checkpoint import checkpoint
kind = "KIND"

class Block(torch.nn.Module):
    def __init__(self, width=1024):
        super().__init__()
        self.up = torch.nn.Linear(width, 2 * width, bias=False)
        self.down = torch.nn.Linear(2 * width, width, bias=False)

    def forward(self, x):
        y = self.up(x)  # up
        y = torch.nn.functional.gelu(y)  # gelu
        return x + self.down(y)  # down

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(4))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if kind == "checkpointed" else block(x)
        return x

device = "cuda" if torch.cuda.is_available() else "cpu"
model = Model().to(device, torch.bfloat16)
modes = {"compiled": None, "replayed": "reduce-overhead"}
step = torch.compile(model, mode=modes[kind]) if kind in modes else model
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.randn(2048, 1024, device=device, dtype=torch.bfloat16, requires_grad=True)
def train():
    step(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    # In the memory of a replayed graph, which the next replay writes again.
    x.grad = None

train()
# A GPU settles before its steps are timed; a CPU takes 60 steps.
end = time.time() + (12 if device == "cuda" else 0)
for number in range(1_000_000):
    train()
    if number >= 60 and time.time() > end:
        break
frames = torch._dynamo.utils.counters["frames"] if kind in modes else dict()
print(json.dumps(frames), flush=True)
"""

KINDS = ("plain", "checkpointed", "compiled", "replayed")


def check(kind: str, folder: Path) -> bool:
    """Run one kind and compare; prints what it found."""
    seen = run_program(kind, PROGRAM.replace("KIND", kind), folder)
    capture = gpuprof.load(seen.capture)
    source = PROGRAM.replace("KIND", kind).splitlines()
    marked = {
        name: next(n for n, text in enumerate(source, 1) if text.endswith(f"# {name}"))
        for name in ("up", "gelu", "down")
    }
    products = capture.ops.filter(pl.col("name") == "aten::mm")
    counts = products.group_by("module", "line").len().sort("module", "line")
    print(f"{kind}: {counts.rows()}")
    if kind in ("compiled", "replayed"):
        print(f"  frames compiled: {seen.own}")
        return seen.own["total"] == 1 and _compiled_right(capture, marked)
    unknown = products.filter(pl.col("line").is_null()).height
    wrong = sum(
        number
        for module, line, number in counts.rows()
        if line is not None and marked[str(module).rpartition(".")[2]] != line
    )
    steps = capture.steps.filter(pl.col("phase") == "profiled").height
    # Of each block one forward and two backward products of each of two layers.
    expected = steps * 4 * 2 * 3
    print(f"  {products.height - unknown} of {expected} with a line, {wrong} wrong")
    # On a CPU what a checkpoint repeats has its line too.
    return wrong == 0 and products.height - unknown >= expected


def _compiled_right(capture: gpuprof.Capture, marked: dict[str, int]) -> bool:
    """Whether all products and generated kernels have lines and modules, and the right ones."""
    products = capture.ops.filter(pl.col("name").is_in(["aten::mm", "aten::addmm"]))
    # inductor may put the sum behind a product into it, which is the block's.
    wrong = [
        row
        for row in products.select("module", "line").unique().iter_rows()
        if row[1] not in (marked["up"], marked["down"]) or not str(row[0]).startswith("blocks.")
    ]
    kernels = capture.ops.filter(pl.col("name").str.contains("^(triton|cpp)_.*fused"))
    for name, module, text in kernels.select("name", "module", "origins").unique().iter_rows():
        origins = () if text is None else decode_origins(text)
        print(f"  {name} {module}: {[(each.operator, each.line) for each in origins]}")
        gelu = [each.line for each in origins if "gelu" in each.operator]
        if not origins or any(line != marked["gelu"] for line in gelu):
            wrong.append((name, module))
        if "gelu" in name and not gelu:
            wrong.append((name, module))
    work = capture.kernels.join(capture.ops, on="op_id", how="left")
    known = work.filter(pl.col("origins").is_not_null()).height
    print(f"  {known} of {work.height} kernels in compiled graphs; wrong: {wrong}")
    return bool(known) and not wrong and kernels.height > 0


def main() -> int:
    """The exit code: 1 where one kind differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", choices=KINDS, default=list(KINDS))
    with tempfile.TemporaryDirectory() as folder:
        right = [check(kind, Path(folder)) for kind in parser.parse_args().kinds]
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
