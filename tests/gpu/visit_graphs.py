"""The same work eager and as a CUDA graph: does gpuprof count the same FLOPs of both?

    python tests/gpu/visit_graphs.py [--output FOLDER] [PAIR ...]

Each program runs twice under `gpuprof run` as a person would start it, eager and replayed. Compared
are the FLOPs of matrix products a step, which must be equal to the digit, and the share of device
time with an operator, which must be over 90 %. With --output the traces that torch.profiler itself
makes of a capture and of its replay are kept too. Exits 1 where one differs.
"""

import argparse
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from programs import run_program

# Of device time, for a graph.
ENOUGH = 0.9

HEAD = """
import json, sys, time, torch
import gpuprof
torch.manual_seed(0)
bf16 = torch.bfloat16

class Block(torch.nn.Module):
    def __init__(self, width=2048, heads=16):
        super().__init__()
        self.heads = heads
        self.norm, self.qkv = torch.nn.LayerNorm(width), torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)
        self.act = torch.nn.GELU()

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = torch.nn.functional.scaled_dot_product_attention(*parts, is_causal=length > 1)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(self.act(self.up(x)))

def on_the_side(work, times=3):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(times):
            work()
    torch.cuda.current_stream().wait_stream(side)

def captured(work):
    on_the_side(work)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay

def steps(step, seconds=12):
    # A GPU settles for 2 s before its steps are timed.
    end, done = time.time() + seconds, 0
    while time.time() < end or done < 60:
        step()
        gpuprof.step()
        done += 1
        if done % 20 == 0:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    print(json.dumps({}))
"""

INFERENCE = """
model = torch.nn.Sequential(Block(), Block()).cuda().to(bf16)
x = torch.randn({shape}, device="cuda", dtype=bf16)
def work():
    with torch.no_grad():
        return model(x)
"""

TRAINING = """
model = torch.nn.Sequential(Block(), Block()).cuda().to(bf16)
x = torch.randn(2, 512, 2048, device="cuda", dtype=bf16)
optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
def work():
    optimizer.zero_grad(set_to_none=True)
    model(x).float().square().mean().backward()
    optimizer.step()
"""

COMPILED = "model = torch.compile(model{mode})\n"

CALLABLES = """
model = torch.nn.Sequential(Block(), Block()).cuda().to(bf16)
x = torch.randn(2, 512, 2048, device="cuda", dtype=bf16, requires_grad=True)
{graphed}
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
def work():
    optimizer.zero_grad(set_to_none=True)
    model(x).float().square().mean().backward()
    optimizer.step()
"""
GRAPHED = "model[0], model[1] = (torch.cuda.make_graphed_callables(one, (x,)) for one in model)"

SEVERAL = """
model = Block().cuda().to(bf16)
inputs = [torch.randn(n, 1, 2048, device="cuda", dtype=bf16) for n in (1, 8, 64, 256)]
def of(x):
    def work():
        with torch.no_grad():
            return model(x)
    return work
works = [of(x) for x in inputs]
"""


@dataclass(frozen=True)
class Pair:
    """One piece of work, as it is run eagerly and as a graph."""

    eager: str
    graph: str


PAIRS = {
    "prefill": Pair(
        INFERENCE.format(shape="1, 1024, 2048") + "steps(work)",
        INFERENCE.format(shape="1, 1024, 2048") + "steps(captured(work))",
    ),
    "decode": Pair(
        INFERENCE.format(shape="32, 1, 2048") + "steps(work)",
        INFERENCE.format(shape="32, 1, 2048") + "steps(captured(work))",
    ),
    "training": Pair(TRAINING + "steps(work)", TRAINING + "steps(captured(work))"),
    "compiled": Pair(
        INFERENCE.format(shape="1, 1024, 2048") + COMPILED.format(mode="") + "steps(work)",
        INFERENCE.format(shape="1, 1024, 2048")
        + COMPILED.format(mode=', mode="reduce-overhead"')
        + "steps(work)",
    ),
    "compiled_training": Pair(
        TRAINING + COMPILED.format(mode="") + "steps(work)",
        TRAINING + COMPILED.format(mode=', mode="reduce-overhead"') + "steps(work)",
    ),
    "callables": Pair(
        CALLABLES.format(graphed="") + "steps(work)",
        CALLABLES.format(graphed=GRAPHED) + "steps(work)",
    ),
    "several": Pair(
        SEVERAL + "steps(lambda: [work() for work in works])",
        SEVERAL + "graphs = [captured(work) for work in works]\n"
        "steps(lambda: [replay() for replay in graphs])",
    ),
}

# Nothing of gpuprof's session: what Kineto itself writes of a capture and of a replay, and what the
# driver tells of the graph.
RECORD = """
import dataclasses
from gpuprof.collectors.live.graph_nodes import nodes_being_captured
from torch.profiler import ProfilerActivity, profile
folder = sys.argv[1]
both = dict(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True)
on_the_side(work)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
def keep(trace, name):
    # At once: once another profile has run, all times are 0.
    trace.export_chrome_trace(f"{folder}/{sys.argv[2]}_{name}.json.gz")
with profile(**both) as trace:
    work()
    torch.cuda.synchronize()
keep(trace, "eager")
with profile(**both) as trace:
    with torch.cuda.graph(graph):
        work()
        nodes = nodes_being_captured()
keep(trace, "capture")
with profile(**both) as trace:
    graph.replay()
    torch.cuda.synchronize()
keep(trace, "replay")
told = [dataclasses.asdict(node) for node in nodes or ()]
with open(f"{folder}/{sys.argv[2]}_nodes.json", "w") as file:
    json.dump(told, file)
"""


def products(analysis: dict[str, Any]) -> float:
    """FLOPs of matrix products a step."""
    flops = (analysis["step"] or {}).get("flops") or ()
    counted = sum(part["count"] for part in flops if part["kind"] == "matmul")
    return float(counted / max(analysis["steps"]["profiled"], 1))


def compared(eager: dict[str, Any], graph: dict[str, Any]) -> list[str]:
    """What differs that should not."""
    wrong = []
    if products(eager) != products(graph) or not products(eager):
        wrong.append(f"{products(graph):.0f} FLOPs of products a step, eager {products(eager):.0f}")
    if (graph["coverage"]["with_op"] or 0) < ENOUGH:
        wrong.append(f"only {graph['coverage']['with_op']} of device time has an operator")
    if not graph.get("graphs"):
        wrong.append("no replay was seen")
    return wrong


def record(name: str, source: str, folder: Path) -> None:
    """Keep torch.profiler's own traces of a capture and a replay in `folder`."""
    script = folder / f"{name}_record.py"
    script.write_text(HEAD + source + RECORD)
    command = [sys.executable, str(script), str(folder), name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        print(f"{name} could not be recorded: {done.stderr[-400:]}")


def main() -> int:
    """Run all pairs and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", nargs="*", default=list(PAIRS))
    parser.add_argument("--output", type=Path, help="keep summaries, captures and traces here")
    arguments = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.output or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if arguments.output:
            record("decode", INFERENCE.format(shape="32, 1, 2048"), folder)
            record("training", TRAINING, folder)
        for name in arguments.pairs:
            pair, told = PAIRS[name], ""
            try:
                eager, graph = (
                    run_program(f"{name}_{way}", HEAD + source, folder).analysis
                    for way, source in (("eager", pair.eager), ("graph", pair.graph))
                )
                wrong = compared(eager, graph)
                mfus = [(one["utilization"] or {}).get("mfu") for one in (eager, graph)]
                told = f"MFU {mfus}, coverage {graph['coverage']['with_op']}, {graph['graphs']}"
            except (RuntimeError, subprocess.TimeoutExpired, OSError, KeyError) as error:
                wrong = [f"{type(error).__name__}: {error}"]
            failed += bool(wrong)
            said = "; ".join(wrong)
            print(f"{'WRONG' if wrong else 'ok':6} {name:18} {said}\n    {told}", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
