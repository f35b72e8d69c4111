"""`gpuprof run` beside a program that has the same core."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuprof.collectors import storage
from gpuprof.collectors.live.run_delay import process_run_delay_ns
from gpuprof.roofline.analyze import analyze

Gpuprof = Callable[..., "subprocess.CompletedProcess[str]"]

SCRIPT = """
import os
import time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import gpuprof
import torch
for _ in range(16):
    started = time.thread_time()
    while time.thread_time() - started < 0.02:
        torch.ones(1).add_(1)
    gpuprof.step()
"""


BUSY = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
while True: pass
"""


@contextmanager
def a_program_on_its_core() -> Iterator[None]:
    """Beside a program that never sleeps, on the core that `SCRIPT` takes."""
    with subprocess.Popen([sys.executable, "-c", BUSY]) as other:
        try:
            yield
        finally:
            other.kill()


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or process_run_delay_ns() is None,
    reason="the system does not count how long a thread waited for a core",
)
def test_a_run_says_that_others_had_the_core_and_for_how_much(
    tmp_path: Path, gpuprof: Gpuprof
) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    with a_program_on_its_core():
        done = gpuprof("run", "-o", "out.gpuprof", "script.py")
    assert done.returncode == 0, done.stderr
    fraction = analyze(storage.load(tmp_path / "out.gpuprof")).steps.waiting_fraction
    assert fraction is not None
    assert fraction > 0.1
    said = " ".join(done.stderr.split())
    found = re.search(r"machine was busy: for (\d+)% of the timed steps the program waited", said)
    assert found is not None, done.stderr
    assert int(found[1]) == round(100 * fraction)
    assert "still settling" not in said
