"""`gpuprof run --watch`: every step of a real program after the profiled ones."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from training_script import write

Gpuprof = Callable[..., "subprocess.CompletedProcess[str]"]

# Long enough that most steps are kept, also on a slow host, where several share a mark.
PROGRAM = """
import gc, json, random
from torch.utils.data import dataloader
random.seed(3)
batches = dataloader.DataLoader([torch.randn(8)] * 800, batch_size=2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number, batch in enumerate(batches):
    model(batch).sum().backward()
    optimizer.step()
    time.sleep(0.2 if number % 20 == 19 else 0.006)
print(json.dumps([random.random(), len(gc.callbacks)]))
"""


def test_every_step_is_watched_and_the_slow_ones_are_explained(
    tmp_path: Path, gpuprof: Gpuprof
) -> None:
    script = write(tmp_path, PROGRAM)
    schedule = ("--warmup", "2", "--timed", "4", "--profiled", "1")
    done = gpuprof("run", "--watch", *schedule, "-o", "out.gpuprof", script)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stderr.split())
    assert "Step times P50 " in " ".join(said.split())
    assert "blocked on the host" in said
    analysis = json.loads((tmp_path / "out.gpuprof" / "analysis.json").read_bytes())
    slow = analysis["slow_steps"]
    assert slow["population"] == "watched"
    assert slow["clock"] == "host clock"
    # Those that decide how many share a mark are not kept.
    assert 100 <= slow["steps"] <= 393
    assert slow["median_ns"] >= 6e6
    assert slow["longest_ns"] * slow["steps_per_mark"] >= 2e8
    # Each of at least five sleeps is longer by most of 0.2 s, whatever else a busy machine adds.
    blocked = [cause for cause in slow["causes"] if cause["cause"] == "blocked on the host"]
    assert sum(cause["longer_ns"] for cause in blocked) * slow["steps_per_mark"] > 5 * 0.15e9
    assert 0 < slow["watching_fraction"] < 0.05
    if slow["steps_per_mark"] == 1:
        asleep = [
            step["index"]
            for step in slow["slowest"]
            if any(part["longer_ns"] > 1.5e8 for part in step["differences"])
            and step["differences"][0]["cause"] == "blocked on the host"
        ]
        assert len(asleep) >= 5
        assert {(index - asleep[0]) % 20 for index in asleep} == {0}


def test_a_watch_needs_the_steps_that_stop_after_leaves_out(
    tmp_path: Path, gpuprof: Gpuprof
) -> None:
    done = gpuprof("run", "--watch", "--stop-after", write(tmp_path, "train(3)"))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "--stop-after leaves out" in done.stderr
