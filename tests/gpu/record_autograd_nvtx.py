"""Record a training under nsys with the ranges of torch's autograd, and the same by `gpuprof run`.

    python tests/gpu/record_autograd_nvtx.py [--output FOLDER]

`torch.autograd.profiler.emit_nvtx` marks each operator with its name and sizes. Kept in
FOLDER: autograd.sqlite.gz, the export, and autograd.gpuprof, a capture of the program without nsys,
whose operators and FLOPs are the truth.
nsys is looked for as gpuprof does; what its importer needs has to be in LD_LIBRARY_PATH.
"""

import argparse
import gzip
import os
import subprocess
import sys
from pathlib import Path

from gpuprof.collectors.tools import find_tool

PROGRAM = """
import sys, torch
torch.manual_seed(0)
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 64, 3, padding=1)
        self.norm = torch.nn.LayerNorm(1024)
        self.up = torch.nn.Linear(1024, 4096)
        self.down = torch.nn.Linear(4096, 1024, dtype=torch.bfloat16)
    def forward(self, x):
        h = self.stem(x).reshape(x.shape[0], 64, 1024)
        h = self.up(self.norm(h)).bfloat16()
        h = self.down(torch.nn.functional.gelu(h))
        heads = h.view(h.shape[0], 64, 16, 64).transpose(1, 2)
        scores = torch.softmax(heads @ heads.transpose(-1, -2), -1)
        attention = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
        return attention + scores @ heads
model = Model().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
x = torch.randn(32, 3, 32, 32, device="cuda")
def step():
    optimizer.zero_grad()
    loss = model(x).float().square().mean()
    loss.backward()
    optimizer.step()
if sys.argv[1:] == ["nsys"]:
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()
    with torch.autograd.profiler.emit_nvtx(record_shapes=True):
        for number in range(3):
            with torch.cuda.nvtx.range(f"step {number}"):
                step()
                torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()
else:
    for _ in range(60):
        step()
"""


def main() -> int:
    """Both recordings; the exit status of the first that fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path(os.environ.get("OUT", ".")))
    folder: Path = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)
    program, report = folder / "autograd.py", folder / "autograd.nsys-rep"
    program.write_text(PROGRAM)
    nsys = find_tool("nsys")
    if nsys is None:
        print("nsys is not installed")
        return 1
    database = report.with_suffix(".sqlite")
    capture_range = ("--capture-range=cudaProfilerApi", "--capture-range-end=stop")
    options = ("--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none", *capture_range)
    force = "--force-overwrite=true"
    capture = str(folder / "autograd.gpuprof")
    commands = (
        [nsys, "profile", *options, force, f"--output={report}"],
        [nsys, "export", "--type=sqlite", force, f"--output={database}", str(report)],
        [sys.executable, "-m", "gpuprof", "run", "-o", capture, "--force", str(program)],
    )
    commands[0].extend([sys.executable, str(program), "nsys"])
    for command in commands:
        status = subprocess.run(command, check=False).returncode
        if status:
            return status
    (folder / "autograd.sqlite.gz").write_bytes(gzip.compress(database.read_bytes(), 9, mtime=0))
    return 0


if __name__ == "__main__":
    sys.exit(main())
