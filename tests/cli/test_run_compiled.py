"""`gpuprof run` on a program that torch.compile compiled: lines and modules of its kernels."""

import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import polars as pl

from gpuprof.collectors import storage
from gpuprof.collectors.kernel_origins import decode_origins
from gpuprof.roofline.analyze import analyze

Gpuprof = Callable[..., "subprocess.CompletedProcess[str]"]
BLOCKS, STEPS, ROWS, WEIGHT = 2, 2, 32, 64 * 128
# Products with both weights forward, their gradients, and gradients of all inputs but the first.
TRAINING = 2 * ROWS * WEIGHT * (6 * BLOCKS - 1)
PROGRAM = f"""
import torch

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(64, 128, bias=False)
        self.down = torch.nn.Linear(128, 64, bias=False)

    def forward(self, x):
        y = self.up(x)  # up
        y = torch.sigmoid(y)  # sigmoid
        y = y * 2.0  # scale
        return x + self.down(y)  # down

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range({BLOCKS}))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)  # block
        return x

torch.manual_seed(0)
model = Model()
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for micro_batch in range(48):
    (compiled(torch.randn({ROWS}, 64)).square().mean() / 4).backward()  # step
    if micro_batch % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
"""
LINES = {
    text.rpartition("# ")[2]: number
    for number, text in enumerate(PROGRAM.splitlines(), 1)
    if "# " in text
}


def test_kernels_of_a_compiled_step_have_their_operators_lines_and_modules(
    tmp_path: Path, cold_gpuprof: Gpuprof
) -> None:
    """With --stacks, which leaves torch's caches of graphs alone: what is in them has no lines."""
    (tmp_path / "program.py").write_text(PROGRAM)
    steps = ("--warmup", "2", "--timed", "3", "--profiled", str(STEPS))
    run = ("run", "-q", "--stacks", *steps, "-o", "capture.gpuprof", "program.py")
    # Where nothing is cached it compiles C++, on machines that others use too.
    result = cold_gpuprof(*run, timeout_s=300)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    capture = storage.load(tmp_path / "capture.gpuprof")
    passes = STEPS * 4

    # inductor puts the sum behind a product into it, here that of the residual and its gradient's.
    products = capture.ops.filter(pl.col("name").is_in(["aten::mm", "aten::addmm"]))
    sums = products.filter(pl.col("name") == "aten::addmm")
    assert sums.height == passes * (2 * BLOCKS - 1)
    assert {
        tuple(each.operator for each in decode_origins(text)) for text in sums["origins"].unique()
    } == {("aten::mm", "aten::add")}
    expected = Counter[tuple[str, int, str]]()
    for number in range(BLOCKS):
        for name in ("up", "down"):
            # Forward, the weight's gradient, and the input's, which the first layer needs not.
            times = passes * (2 if (number, name) == (0, "up") else 3)
            expected[f"blocks.{number}.{name}", LINES[name], "Block.forward"] = times
    assert Counter(products.select("module", "line", "function").iter_rows()) == expected
    assert set(products["file"]) == {"program.py"}

    # Forward and backward, what dynamo compiled is called by what calls the compiled function.
    down = products.filter(pl.col("module") == "blocks.1.down")
    (stack,) = down["stack"].unique()
    innermost, caller, *_, outermost = stack.splitlines()
    assert (innermost, caller, outermost) == (
        f"program.py:{LINES['down']} Block.forward",
        f"program.py:{LINES['block']} Model.forward",
        f"program.py:{LINES['step']} <module>",
    )

    # What is pointwise is one kernel in each direction. Going back it computes sigmoid again, and
    # comes to the last line first.
    lines = Counter[tuple[str, tuple[tuple[str, int | None], ...]]]()
    kernels = capture.ops.filter(pl.col("name").str.starts_with("cpp_fused_"))
    for module, text in kernels.select("module", "origins").iter_rows():
        lines[module, tuple((each.operator, each.line) for each in decode_origins(text))] += 1
    forward = ("aten::sigmoid", LINES["sigmoid"]), ("aten::mul", LINES["scale"])
    backward = forward[1], ("aten::sigmoid_backward", LINES["sigmoid"]), forward[0]
    assert lines == {
        (f"blocks.{number}", origins): passes
        for number in range(BLOCKS)
        for origins in (forward, backward)
    }

    analysis = analyze(capture)
    assert analysis.utilization is not None
    assert analysis.utilization.model_flops == 4 * TRAINING
    form = analysis.closed_form
    assert form is not None
    assert (form.tokens, form.counted, form.unexplained) == (4 * ROWS, 4 * TRAINING, 0)

    (kernel,) = {point.fused for point in analysis.ops if point.name == "cpp_fused_mul_sigmoid_0"}
    assert [(each.name, each.module) for each in kernel] == [
        ("aten::sigmoid", "blocks.*"),
        ("aten::mul", "blocks.*"),
    ]
    explained = cold_gpuprof("explain", "capture.gpuprof", "cpp_fused_mul_sigmoid_0")
    assert f"aten::mul  program.py:{LINES['scale']} in Block.forward" in explained.stdout
    assert "Lines that lead to it" in explained.stdout
