"""What Nsight Compute can do beside a running program, and what `gpuprof run --counters` costs.

    python tests/gpu/visit_counters.py --output FOLDER [facts|filters|attach|cost|join|bench ...]

facts: version, options and metric names of the installed ncu, for chips that are not here too.
filters: which launches its filters take, and whether counting can be stopped from another thread.
attach: can it count in a process that was started without it, and does torch.profiler work there?
cost: seconds and passes for a training step, by groups of metrics. join: the share of chosen
launches that found their kernel, FLOPs of products in each precision, bytes of streaming kernels.
bench: the same of `gpuprof bench --counters`.
Prints what was found, and keeps in FOLDER what ncu wrote; exits 1 where join finds a difference.
"""

import argparse
import csv
import gzip
import io
import json
import os
import platform
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Any, Final

from gpuprof.collectors.tools import TOOL_PLACES, find_tool

CHIPS: Final = ("gv100", "tu102", "ga100", "ga102", "ad102", "gh100", "gb100", "gb202")
DURATION: Final = "gpu__time_duration.sum"
# What a training step may cost under --counters, from the first line of the program to the report.
MOST_SECONDS: Final = 90
LEAST_JOINED: Final = 0.95
BYTES_TOLERANCE: Final = 0.05

# Three kinds of work of one grid, one of them in another grid too, and a product.
LAUNCHES: Final = """
import sys, torch
few, other = (torch.ones(1 << 20, device="cuda") for _ in range(2))
many = torch.ones(1 << 22, device="cuda")
a = torch.ones(1024, 1024, device="cuda", dtype=torch.bfloat16)
def step():
    few.add_(1); few.add_(1); other.mul_(2); many.add_(1); few.sin_(); few.add_(1); other.mul_(2)
    a @ a; a @ a
step()
torch.cuda.synchronize()
runtime = torch.cuda.cudart()
runtime.cudaProfilerStart()
if "nvtx" in sys.argv:
    with torch.autograd.profiler.emit_nvtx(record_shapes=True):
        step()
else:
    step()
torch.cuda.synchronize()
runtime.cudaProfilerStop()
step()
torch.cuda.synchronize()
print("ended")
"""

# Counting, or the program, is ended by another thread after three seconds.
STOPPED: Final = """
import os, sys, threading, time, torch
a = torch.ones(1 << 28, device="cuda")
a.add_(1)
torch.cuda.synchronize()
runtime = torch.cuda.cudart()
stopped = []
def stop():
    time.sleep(3)
    if "exit" in sys.argv:
        os._exit(0)
    begun = time.time()
    runtime.cudaProfilerStop()
    stopped.append(time.time() - begun)
runtime.cudaProfilerStart()
threading.Thread(target=stop, daemon=True).start()
begun = time.time()
for _ in range(200):
    a.add_(1)
torch.cuda.synchronize()
print(f"200 launches took {time.time() - begun:.1f} s, cudaProfilerStop {stopped}")
"""

WAITING: Final = """
import ctypes, os, sys, time
folder, library = sys.argv[1], sys.argv[2:]
begun = time.time()
def note(text):
    with open(os.path.join(folder, "notes.txt"), "a") as file:
        file.write(f"{time.time() - begun:.1f} s: {text}\\n")
def exists(name):
    return os.path.exists(os.path.join(folder, name))
if library:
    try:
        ctypes.CDLL(library[0])
        note("injection library loaded")
    except OSError as error:
        note(f"injection library: {error}")
import torch
note("torch imported")
a = torch.ones(2048, 2048, device="cuda", dtype=torch.bfloat16)
torch.cuda.synchronize()
note("first CUDA work done")
def profiled(when):
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        for _ in range(3):
            a @ a
        torch.cuda.synchronize()
    events = found.profiler.kineto_results.events()
    kernels = sum(str(event.device_type()).endswith("CUDA") for event in events)
    note(f"torch.profiler {when}: {kernels} events on the device of 3 products")
profiled("before")
open(os.path.join(folder, "ready"), "x").close()
while not exists("again") and time.time() - begun < 100:
    a @ a
    a.mul_(1)
    torch.cuda.synchronize()
    time.sleep(0.05)
profiled("after")
note("ended")
"""

BLOCK: Final = """
import sys, time, torch, torch.nn as nn, torch.nn.functional as F
begun = time.time()
class Block(nn.Module):
    def __init__(self, d=4096, heads=32, ff=11008):
        super().__init__()
        self.d, self.heads = d, heads
        self.qkv, self.o = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.g, self.u = nn.Linear(d, ff, bias=False), nn.Linear(d, ff, bias=False)
        self.down = nn.Linear(ff, d, bias=False)
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
    def forward(self, x):
        b, l, _ = x.shape
        shape = (b, l, self.heads, self.d // self.heads)
        q, k, v = (t.view(shape).transpose(1, 2) for t in self.qkv(self.n1(x)).split(self.d, -1))
        found = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(found.transpose(1, 2).reshape(b, l, self.d))
        y = self.n2(x)
        return x + self.down(F.silu(self.g(y)) * self.u(y))
model = nn.Sequential(*(Block() for _ in range(4))).cuda().bfloat16()
x = torch.randn(2, 2048, 4096, device="cuda", dtype=torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
def step():
    model(x).float().pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
if "window" in sys.argv:
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    print(f"ready after {time.time() - begun:.1f} s", flush=True)
    torch.cuda.cudart().cudaProfilerStart()
    step()
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()
else:
    end = time.time() + 8
    while time.time() < end:
        step()
    torch.cuda.synchronize()
"""

PRODUCTS: Final = """
import time, torch
import gpuprof
torch.manual_seed(0)
def random(*size, dtype=torch.float32):
    return torch.randn(*size, device="cuda").to(dtype)
pairs = {name: (random(2048, 2048, dtype=getattr(torch, name)),) * 2
         for name in ("float64", "float32", "float16", "bfloat16")}
eight = random(4096, 4096).to(torch.float8_e4m3fn)
one = torch.tensor(1.0, device="cuda")
whole = torch.randint(-9, 9, (2048, 2048), device="cuda", dtype=torch.int8)
source = random(1 << 28)
target, other = torch.empty_like(source), random(1 << 28)
def step():
    for left, right in pairs.values():
        left @ right
    torch.backends.cuda.matmul.allow_tf32 = True
    pairs["float32"][0] @ pairs["float32"][1]
    torch.backends.cuda.matmul.allow_tf32 = False
    torch._scaled_mm(eight, eight.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    torch._int_mm(whole, whole.t())
    target.copy_(source)
    torch.add(source, other, out=target)
    torch.mul(source, 2.0, out=target)
end = time.time() + 8
while time.time() < end:
    step()
    gpuprof.step()
torch.cuda.synchronize()
"""


@dataclass(frozen=True)
class Tool:
    """The installed ncu, and where the visit's files go."""

    ncu: str
    folder: Path

    def run(self, options: Sequence[str], limit_s: float, **more: Any) -> tuple[str, float]:
        """What `ncu` printed, both streams, and its seconds; a line says where time was up."""
        begun = time.time()
        try:
            done = subprocess.run(
                [self.ncu, *options],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=limit_s,
                check=False,
                **more,
            )
            printed = f"{done.stdout}\nexit code {done.returncode}"
        except subprocess.TimeoutExpired as error:
            output = error.stdout or b""
            text = output.decode(errors="replace") if isinstance(output, bytes) else output
            printed = f"{text}\nno end after {limit_s} s"
        return printed, time.time() - begun

    def script(self, name: str, source: str) -> str:
        path = self.folder / f"{name}.py"
        path.write_text(source)
        return str(path)


def facts(tool: Tool) -> list[str]:
    """Version and help; metric names of each chip; the section files."""
    print(tool.run(["--version"], 20)[0].strip().replace("\n", " | "))
    (tool.folder / "ncu_help.txt").write_text(tool.run(["--help"], 20)[0])
    for chip in CHIPS:
        printed, _ = tool.run(["--query-metrics", "--chips", chip], 30)
        (tool.folder / f"metrics_{chip}.txt.gz").write_bytes(gzip.compress(printed.encode()))
        print(f"{chip}: {len(printed.splitlines())} lines of metrics")
    for folder in installed("sections")[:1]:
        with tarfile.open(tool.folder / "sections.tar.gz", "w:gz") as archive:
            archive.add(folder, "sections")
        print(f"sections: {folder}")
    for library in installed("libcuda-injection.so"):
        text = Path(library).read_bytes()
        names = sorted(set(re.findall(rb"\b[A-Za-z]*Nv[A-Za-z]*Inj[A-Za-z]+\b|NvComp\w+", text)))
        print(f"injection library: {library}, names of its interface: {names[:12]}")
    return []


def installed(name: str) -> list[str]:
    """Files of this name under the places where ncu is installed, the newest version first."""
    roots = {
        str(Path(place).resolve().parent) for each in TOOL_PLACES["ncu"] for place in glob(each)
    }
    found = {
        str(path)
        for root in roots
        for pattern in (name, f"target/*64/{name}", f"*/{name}", f"*/*/{name}")
        for path in Path(root).glob(pattern)
    }
    machine = "x64" if platform.machine() == "x86_64" else "a64"
    ours = [path for path in found if "/target/" not in path or f"{machine}/" in path]
    return sorted(ours, reverse=True)


def launches(page: Path) -> list[dict[str, str]]:
    """Rows of a CSV page of ncu, without its row of units."""
    text = page.read_text(errors="replace") if page.exists() else ""
    start = text.find('"ID"')
    return [] if start < 0 else list(csv.DictReader(io.StringIO(text[start:])))[1:]


def told(rows: Sequence[Mapping[str, str]]) -> str:
    """Names and grids of launches in a line."""
    return "; ".join(f"{row['Kernel Name'][:90]} {row.get('Grid Size', '')}" for row in rows)


def filters(tool: Tool) -> list[str]:
    """Which of the launches of a known program each filter takes."""
    script = tool.script("launches", LAUNCHES)
    elementwise = "regex:elementwise_kernel"
    for name, options, arguments in (
        ("all", (), ()),
        ("per_launch_config", ("--filter-mode", "per-launch-config", "--launch-count", "1"), ()),
        (
            "demangled",
            ("--kernel-name-base", "demangled", "-k", "regex:AddFunctor|CUDAFunctor_add"),
            (),
        ),
        ("kernel_id", ("--kernel-id", f"::{elementwise}:^(2|4)$"), ()),
        # Two launches where all that match are counted together, one where each function is.
        (
            "functions",
            ("--kernel-id", "::regex:^(vectorized_elementwise_kernel|nvjet.*)$:^(3|8)$"),
            (),
        ),
        ("all_functions", ("--kernel-id", ":::^(3|8)$"), ()),
        (
            "ranges",
            (
                *("--nvtx", "--nvtx-include", "regex:aten..(mul|sin|mm)/"),
                *("--range-filter", ":1:[2|4]"),
            ),
            ("nvtx",),
        ),
        ("nvtx", ("--nvtx", "--nvtx-include", "regex:aten..mul/"), ("nvtx",)),
    ):
        page = tool.folder / f"filter_{name}.csv"
        command = [
            *("--csv", "--page", "raw", "--log-file", str(page), "--metrics", DURATION),
            *("--profile-from-start", "no", *options, sys.executable, script, *arguments),
        ]
        printed, seconds = tool.run(command, 40)
        rows = launches(page)
        print(f"filter {name}: {len(rows)} launches, {seconds:.0f} s: {told(rows)}")
        if not rows:
            print(f"    {printed[-300:]!r} {page.read_text()[-300:] if page.exists() else ''!r}")
    script = tool.script("stopped", STOPPED)
    for name in ("stop", "exit"):
        page = tool.folder / f"ended_{name}.csv"
        command = [
            *("--csv", "--page", "raw", "--log-file", str(page)),
            *("--metrics", "dram__bytes_read.sum", "--profile-from-start", "no"),
            *(sys.executable, script, name),
        ]
        printed, seconds = tool.run(command, 60)
        text = page.read_text() if page.exists() else ""
        print(
            f"ended by a thread ({name}): {len(launches(page))} launches, {seconds:.0f} s: "
            f"{printed!r} {text[:300]!r} ... {text[-300:]!r}"
        )
    return []


def attach(tool: Tool) -> list[str]:
    """Try to count in processes that were started in four ways."""
    library = next(iter(installed("libcuda-injection.so")), "")
    places = {
        "NV_COMPUTE_PROFILER_PERFWORKS_DIR": str(Path(library).parent),
        "NV_COMPUTE_PROFILER_IN_PROCESS": "1",
    }
    injected = {"CUDA_INJECTION64_PATH": library}
    script = tool.script("waiting", WAITING)
    for name, prefix, environment, arguments in (
        ("plain", (), {}, ()),
        ("mode_launch", (tool.ncu, "--mode", "launch"), {}, ()),
        ("injected", (), {**places, **injected}, ()),
        ("loaded", (), places, (library,)),
    ):
        folder = tool.folder / f"attach_{name}"
        folder.mkdir(exist_ok=True)
        with (folder / "printed.txt").open("wb") as sink:
            process = subprocess.Popen(
                [*prefix, sys.executable, script, str(folder), *arguments],
                stdout=sink,
                stderr=sink,
                env=os.environ | environment,
            )
        try:
            ready = _appears(folder / "ready", 25, process)
            page = folder / "counters.csv"
            command = [
                *("--mode", "attach", "--hostname", "127.0.0.1", "--csv", "--page", "raw"),
                *("--log-file", str(page), "--metrics", f"{DURATION},dram__bytes_read.sum"),
                *("--launch-count", "3"),
            ]
            printed = _attached(tool, command, folder)
            ended = _ends(process, 25)
        finally:
            process.kill()
            process.wait()
        notes = folder / "notes.txt"
        print(
            f"attach {name}: ran before ncu attached: {ready}; {len(launches(page))} launches "
            f"counted; ended by itself: {ended} ({process.returncode})\n"
            f"    ncu: {printed[-400:]!r} {page.read_text()[-400:] if page.exists() else ''!r}\n"
            f"    program: {notes.read_text() if notes.exists() else ''!r} "
            f"{(folder / 'printed.txt').read_text()[-400:]!r}",
            flush=True,
        )
    return []


def _attached(tool: Tool, options: Sequence[str], folder: Path) -> str:
    """What ncu printed; the program is told to end when ncu has had its time to count."""
    with (folder / "ncu.txt").open("wb") as sink:
        process = subprocess.Popen([tool.ncu, *options], stdout=sink, stderr=sink)
    try:
        _ends(process, 10)
        (folder / "again").touch()
        in_time = _ends(process, 20)
    finally:
        process.kill()
        process.wait()
    printed = (folder / "ncu.txt").read_text(errors="replace")
    return printed if in_time else f"{printed}\nncu did not end"


def _appears(file: Path, limit_s: float, process: "subprocess.Popen[bytes]") -> bool:
    end = time.time() + limit_s
    while time.time() < end and not file.exists() and process.poll() is None:
        time.sleep(0.1)
    return file.exists()


def _ends(process: "subprocess.Popen[bytes]", limit_s: float) -> bool:
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def cost(tool: Tool) -> list[str]:
    """Seconds of one launch of each name, grid and block of a training step, by what is counted."""
    script = tool.script("block", BLOCK)
    for name, metrics in groups().items():
        page = tool.folder / f"cost_{name}.csv"
        command = [
            *("--csv", "--page", "raw", "--print-units", "base", "--log-file", str(page)),
            *("--metrics", ",".join(metrics), "--clock-control", "none"),
            *("--filter-mode", "per-launch-config", "--launch-count", "1"),
            *("--profile-from-start", "no", sys.executable, script, "window"),
        ]
        printed, seconds = tool.run(command, 120)
        rows = launches(page)
        text = page.read_text() if page.exists() else ""
        passes = sorted({int(number) for number in re.findall(r"(\d+) pass", text + printed)})
        ready = re.findall(r"ready after ([\d.]+)", printed)
        print(
            f"cost of {name} ({len(metrics)} metrics): {seconds:.1f} s in all, program ready after "
            f"{ready}, {len(rows)} launches of {len({row['Kernel Name'] for row in rows})} names, "
            f"passes {passes}; {printed[-200:]!r}",
            flush=True,
        )
    return []


def groups() -> dict[str, tuple[str, ...]]:
    """Groups of metrics, each with what those before it have."""
    roofline = (
        "regex:^sm__ops_path_tensor_src_",
        *(
            f"smsp__sass_thread_inst_executed_op_{kind}{operation}_pred_on.sum"
            for kind in "dfh"
            for operation in ("add", "mul", "fma")
        ),
        *("dram__bytes_read.sum", "dram__bytes_write.sum", "lts__t_bytes.sum"),
        *(DURATION, "sm__cycles_elapsed.avg.per_second"),
    )

    stalls = (
        *("barrier", "branch_resolving", "dispatch_stall", "drain", "gmma", "imc_miss"),
        *("lg_throttle", "long_scoreboard", "math_pipe_throttle", "membar", "mio_throttle"),
        *("misc", "no_instruction", "not_selected", "selected", "short_scoreboard", "sleeping"),
        *("tex_throttle", "wait"),
    )
    occupancy = (
        "sm__warps_active.avg.pct_of_peak_sustained_active",
        "sm__maximum_warps_per_active_cycle_pct",
        "smsp__thread_inst_executed_per_inst_executed.ratio",
        "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
        *(f"sm__cycles_active.{each}" for each in ("avg", "max", "min")),
        "sm__cycles_elapsed.max",
    )
    memory = (
        *(
            f"l1tex__t_{what}_pipe_lsu_mem_global_op_{op}.sum"
            for what in ("requests", "sectors")
            for op in ("ld", "st")
        ),
        *(
            f"l1tex__data_{what}_pipe_lsu_mem_shared_op_{op}.sum"
            for what in ("bank_conflicts",)
            for op in ("ld", "st")
        ),
        *(f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum" for op in ("ld", "st")),
        "l1tex__lsu_writeback_active_mem_lgds.sum",
    )
    return {
        "roofline": roofline,
        "occupancy_memory": (*roofline, *occupancy, *memory),
        "all": (
            *(*roofline, *occupancy, *memory),
            *(f"smsp__average_warps_issue_stalled_{s}_per_issue_active.ratio" for s in stalls),
        ),
    }


def join(tool: Tool) -> list[str]:
    """`gpuprof run --counters` of a training step, and of products and streams that are known."""
    wrong = []
    for name, source in (("training", BLOCK), ("products", PRODUCTS)):
        script, capture = tool.script(name, source), tool.folder / f"{name}.gpuprof"
        command = ["run", "--counters", "-f", "-o", str(capture), script]
        begun = time.time()
        done = subprocess.run(
            [sys.executable, "-m", "gpuprof", *command],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        seconds = time.time() - begun
        (tool.folder / f"{name}.txt").write_text(done.stdout + done.stderr)
        analysis = json.loads((capture / "analysis.json").read_bytes())
        warnings = analysis.get("warnings", [])
        measured = analysis["measured"]
        if measured is None:
            wrong.append(f"{name}: nothing was counted: {done.stderr[-400:]}")
            continue
        print(
            f"{name}: {seconds:.0f} s, {measured['launches']} of {measured['launches_in_trace']} "
            f"launches; {measured.get('counting')}; "
            f"{[text for text in warnings if 'launches' in text or 'counters' in text]}"
        )
        if name == "training" and seconds > MOST_SECONDS:
            wrong.append(f"{name}: {seconds:.0f} s")
        for text in warnings:
            lost = re.match(r"(\d+) of (\d+) profiled launches are not in the trace", text)
            if lost and 1 - int(lost[1]) / int(lost[2]) < LEAST_JOINED:
                wrong.append(f"{name}: {text}")
        wrong += [text for kernel in measured["kernels"] for text in compared(kernel)]
    return wrong


def compared(kernel: Mapping[str, Any]) -> list[str]:
    """Products whose tensor FLOPs differ without a reason, streams whose bytes do."""
    what = f"{kernel['op']} {kernel['detail'][:60]}"
    found = []
    for part in kernel["flops"]:
        if part["unit"] != "tensor" or not part["modelled"]:
            continue
        ratio = (part["measured"] or 0) / part["modelled"]
        print(f"  {what} {part['precision']}: {ratio:.4f} of the model's FLOPs {kernel['reasons']}")
        if ratio != 1 and not kernel["reasons"]:
            found.append(f"{what} {part['precision']}: {ratio:.4f}")
    streams = ("aten::copy_", "aten::add", "aten::mul")
    large = (kernel["bytes_read"]["modelled"] or 0) > 1 << 29
    if kernel["op"] in streams and large:
        for name in ("bytes_read", "bytes_written"):
            measured, modelled = kernel[name]["measured"], kernel[name]["modelled"]
            print(f"  {what} {name}: {measured / modelled:.4f} of the model's")
            if abs(measured / modelled - 1) > BYTES_TOLERANCE and not kernel["reasons"]:
                found.append(f"{what} {name}: {measured / modelled:.4f}")
    return found


def bench(tool: Tool) -> list[str]:
    """`gpuprof bench --counters` of products and streams."""
    wrong = []
    for family, sizes in (("gemm", "4096x4096x4096"), ("stream", "copy:1GiB")):
        capture = tool.folder / f"bench_{family}.gpuprof"
        command = ["bench", family, "--sizes", sizes, "--counters", "-f", "-o", str(capture)]
        begun = time.time()
        done = subprocess.run(
            [sys.executable, "-m", "gpuprof", *command],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        (tool.folder / f"bench_{family}.txt").write_text(done.stdout + done.stderr)
        analysis = json.loads((capture / "analysis.json").read_bytes())
        measured = analysis["measured"]
        told = done.stderr.strip().splitlines()[-2:]
        if measured is None:
            wrong.append(f"bench {family}: nothing was counted: {told}")
            continue
        print(f"bench {family}: {time.time() - begun:.0f} s, {measured['counting']}; {told}")
        wrong += [text for kernel in measured["kernels"] for text in compared(kernel)]
    return wrong


PARTS: Final[dict[str, Callable[[Tool], list[str]]]] = {
    "facts": facts,
    "filters": filters,
    "attach": attach,
    "cost": cost,
    "join": join,
    "bench": bench,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=list(PARTS))
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    ncu = find_tool("ncu")
    if ncu is None:
        print("ncu is not installed here")
        return 1
    arguments.output.mkdir(parents=True, exist_ok=True)
    tool = Tool(str(ncu), arguments.output)
    wrong: list[str] = []
    for name in arguments.parts:
        begun = time.time()
        try:
            wrong += PARTS[name](tool)
        # One part that fails must not hide the others.
        except Exception as error:
            wrong.append(f"{name}: {type(error).__name__}: {error}")
        print(f"-- {name}: {time.time() - begun:.0f} s", flush=True)
    for text in wrong:
        print(f"WRONG  {text}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
