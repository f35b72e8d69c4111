"""A broken pynvml under the real commands: the program runs and ends as it would without us."""

import os
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import fake_nvml
import pytest
from fork_server import ForkServer

from gpuprof import load

SCRIPT = """\
import sys
import gpuprof
for _ in range(30):
    gpuprof.step()
print("trained")
sys.exit(7)
"""
# The stand-in as a module, of which one function is broken.
MODULE = """\
from fake_nvml import FAULTS, FakeNvml, Faulty
_nvml = Faulty(FakeNvml(), {function!r}, FAULTS[{fault!r}])
def __getattr__(name):
    return getattr(_nvml, name)
"""


Gpuprof = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def gpuprof(tmp_path: Path, server: ForkServer) -> Gpuprof:
    """`gpuprof` in the test's folder, whose pynvml it imports."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(
            [str(Path(fake_nvml.__file__).parent), os.environ.get("PYTHONPATH", "")]
        ),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "CUDA_VISIBLE_DEVICES": "0",
    }
    return partial(server.run, "-m", "gpuprof", folder=tmp_path, environment=environment)


@pytest.mark.parametrize(
    ("function", "fault", "sampled"),
    [
        ("nvmlDeviceGetPowerUsage", "missing", True),
        ("nvmlDeviceGetUtilizationRates", "no fields", True),
        ("nvmlInit", "OSError", False),
        ("nvmlShutdown", "RuntimeError", True),
    ],
)
def test_the_program_ends_as_it_would_and_its_capture_can_be_read(
    tmp_path: Path, gpuprof: Gpuprof, function: str, fault: str, sampled: bool
) -> None:
    (tmp_path / "pynvml.py").write_text(MODULE.format(function=function, fault=fault))
    (tmp_path / "train.py").write_text(SCRIPT)
    done = gpuprof("run", "-q", "-o", "out.gpuprof", "train.py")
    assert (done.returncode, done.stdout) == (7, "trained\n"), done.stderr
    assert "Traceback" not in done.stderr
    capture = load(tmp_path / "out.gpuprof")
    assert (capture.samples.height > 0) == sampled
    assert capture.processes[0].exit_code == 7
    if function == "nvmlDeviceGetPowerUsage":
        assert capture.samples["power_milliwatts"].null_count() == capture.samples.height
        assert capture.samples["sm_clock_mhz"].null_count() == 0


def test_doctor_says_what_does_not_answer(tmp_path: Path, gpuprof: Gpuprof) -> None:
    module = MODULE.format(function="nvmlDeviceGetPowerUsage", fault="missing")
    (tmp_path / "pynvml.py").write_text(module)
    done = gpuprof("doctor")
    assert done.returncode == 0, done.stderr
    assert "GPU 0 power_milliwatts" in done.stdout
    assert done.stderr == ""
