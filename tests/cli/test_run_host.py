"""What `gpuprof run` keeps of the host besides operators, of one program with all of it."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from gpuprof import load
from gpuprof.collectors import host_events
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.host_events import Compilation, GarbageCollection, NextBatch

GpuprofCommand = Callable[..., "subprocess.CompletedProcess[str]"]

_PROGRAM = """
import gc
import torch
import torch._dynamo
from torch.utils.data import DataLoader

model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

@torch.compile(backend="eager", dynamic=False)
def loss_of(y):
    return y.square().sum()

torch._dynamo.config.cache_size_limit = 64
# A collection looks at what comes from here on, and takes no time.
gc.freeze()
for rows, batch in enumerate(DataLoader(torch.randn(9, 8), batch_size=1), 1):
    loss_of(model(batch.expand(rows, 8))).backward()
    optimizer.step()
    optimizer.zero_grad()
    gc.collect()
"""


@pytest.fixture
def capture(tmp_path: Path, gpuprof: GpuprofCommand) -> Capture:
    (tmp_path / "program.py").write_text(_PROGRAM)
    steps = ("--warmup", "1", "--timed", "2", "--profiled", "2")
    result = gpuprof("run", *steps, "-o", "c.gpuprof", "program.py")
    assert result.returncode == 0, result.stderr
    return load(tmp_path / "c.gpuprof")


def test_the_hosts_own_work_is_in_the_capture(capture: Capture) -> None:
    steps = capture.steps.filter(pl.col("phase") == "profiled")
    assert steps.height == 2
    events = capture.ranges.filter(pl.col("domain") == "gpuprof")
    for start_ns, end_ns in steps.select("start_ns", "end_ns").iter_rows():
        inside = events.filter(
            (pl.col("start_ns") >= start_ns - 1000) & (pl.col("end_ns") <= end_ns + 1000)
        )
        found = [host_events.decode(text) for text in inside["host_event"]]
        full = [e for e in found if isinstance(e, GarbageCollection) and e.generation == 2]
        assert len(full) == 1
        batches = [event for event in found if isinstance(event, NextBatch)]
        assert [batch.workers for batch in batches] == [0]
        (again,) = [event for event in found if isinstance(event, Compilation)]
        assert (again.function, again.recompiled) == ("loss_of", True)
        assert again.guard is not None
        assert "size mismatch at index 0" in again.guard
    timed = capture.steps.filter(pl.col("phase") == "timed")
    assert (timed["garbage_collection_ns"] > 0).all()
    assert (timed["garbage_collection_ns"] < timed["host_ns"]).all()
    (process,) = capture.processes
    assert process.compilations is not None
    assert (process.compilations.compiled, process.compilations.recompiled) == (9, 8)
    assert process.garbage_collections[2].collections >= 9
    assert process.warnings == ()
