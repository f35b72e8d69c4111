"""`gpuprof run` says what memory held, to the byte, and leaves the program's output alone."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from gpuprof.collectors import storage
from gpuprof.roofline.analyze import analyze

Gpuprof = Callable[..., "subprocess.CompletedProcess[str]"]
# Gradients are given back before a step ends. In a profiled step memory is given back that was
# allocated in steps that were not: of such a block torch warns on stderr.
PROGRAM = """
import gpuprof
import torch
from torch import nn
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32))
optimizer = torch.optim.Adam(model.parameters())
older, recent = [torch.zeros(1000) for _ in range(40)], []
for step in range(9):
    optimizer.zero_grad()
    model(torch.randn(16, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    recent.append(torch.zeros(500))
    if len(recent) > 2:
        recent.pop(0)
    gpuprof.step()
print(torch.ones(3).sum().item())
"""
PARAMETERS = 4 * (64 * 128 + 128 + 128 * 32 + 32)


def test_memory_is_told_by_kind_to_the_byte(tmp_path: Path, gpuprof: Gpuprof) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    steps = ("--warmup", "2", "--timed", "2", "--profiled", "2")
    result = gpuprof("run", "--quiet", *steps, "-o", "c.gpuprof", "train.py")
    assert result.returncode == 0
    alone = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert result.stderr == alone.stderr
    capture = storage.load(tmp_path / "c.gpuprof")
    use = analyze(capture).memory
    assert use is not None
    (memory,) = use.devices
    # Main memory is complete in the last of them.
    assert [step.step for step in memory.steps] == [2]
    assert memory.peak is not None
    kinds = {each.kind: each.bytes for each in memory.peak.kinds}
    # Adam: two moments, and a step of 4 bytes for each of four parameters.
    assert kinds["parameters"] == PARAMETERS
    assert kinds["gradients"] == PARAMETERS
    assert kinds["optimizer state"] == 2 * PARAMETERS + 16
    assert kinds["tensors"] == 4000 * 40
    assert sum(kinds.values()) == memory.peak.allocated_bytes
    # A sum over the table that needs no analysis.
    start_ns = capture.steps.filter(phase="profiled")["start_ns"].max()
    live: dict[int, int] = {}
    total = highest = 0
    for row in capture.allocations.iter_rows(named=True):
        if row["bytes"] > 0:
            live[row["address"]] = row["bytes"]
            total += row["bytes"]
        elif row["address"] in live:
            total -= live.pop(row["address"])
        if row["time_ns"] >= start_ns:
            highest = max(highest, total)
    older = sum(
        row["bytes"]
        for row in capture.memory_blocks.filter(moment="profile end").iter_rows(named=True)
        if row["address"] not in live
    )
    assert memory.peak.allocated_bytes == highest + older
