"""`gpuprof run` on a real GPU."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
ROOT = Path(__file__).parent.parent.parent
# Its last profiles are the last that it does with the device.
PROFILES_ITSELF = """
import gpuprof
import torch
from torch.profiler import ProfilerActivity, profile

a = torch.randn(2048, 2048, device="cuda")
for _ in range(120):
    (a @ a).relu()
    torch.cuda.synchronize()
    gpuprof.step()
for _ in range(2):
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as own:
        for _ in range(5):
            (a @ a).relu()
        torch.cuda.synchronize()
    print(sum(event.device_type.name == "CUDA" for event in own.events()))
"""


def profile(script: Path, folder: Path) -> dict[str, Any]:
    """The analysis of `script` as JSON."""
    capture = folder / "out.gpuprof"
    command = [sys.executable, "-m", "gpuprof", "run", "-q", "-o", str(capture), str(script)]
    subprocess.run(command, check=True, timeout=300)
    analysis: dict[str, Any] = json.loads((capture / "analysis.json").read_bytes())
    return analysis


def test_a_training_step_is_timed_counted_and_sampled(tmp_path: Path) -> None:
    analysis = profile(ROOT / "examples" / "train_transformer.py", tmp_path)
    assert analysis["device"]["name"] == torch.cuda.get_device_name()
    assert analysis["steps"]["clock"] == "CUDA events"
    # Timed until they are steady, ten at least.
    assert analysis["steps"]["timed"] >= 10
    assert analysis["steps"]["profiled"] == 3
    assert analysis["coverage"]["with_op"] > 0.99
    assert analysis["coverage"]["with_flops"] > 0.97
    assert analysis["coverage"]["with_bytes"] > 0.95
    assert analysis["device_state"]["samples"] > 0
    kinds = {kernel["bottleneck"]["kind"] for kernel in analysis["kernels"]}
    assert {"compute", "memory"} <= kinds


def test_a_launch_bound_script_waits_for_the_host(tmp_path: Path) -> None:
    analysis = profile(ROOT / "benchmarks" / "scripts" / "launch_bound.py", tmp_path)
    assert analysis["steps"]["found_by"] == "forward calls of ManySmallOps"
    assert analysis["bottleneck"]["kind"] == "launch"
    assert analysis["steps"]["launches_per_step"] == 400


def test_a_script_that_profiles_itself_last_ends_with_all_that_both_recorded(
    tmp_path: Path,
) -> None:
    script = tmp_path / "profiles_itself.py"
    script.write_text(PROFILES_ITSELF)
    command = [sys.executable, "-m", "gpuprof", "run", "-q", "-o", "out.gpuprof", str(script)]
    done = subprocess.run(
        command, check=True, timeout=120, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout.split() == ["10", "10"]
    analysis = json.loads((tmp_path / "out.gpuprof" / "analysis.json").read_bytes())
    assert analysis["steps"]["launches_per_step"] == 2
