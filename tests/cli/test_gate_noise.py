"""What stands around a gate, as users start it: noise, baselines, history."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuprof.profiler.gate.history import History

GpuprofCommand = Callable[..., "subprocess.CompletedProcess[str]"]

SCRIPT = """\
import torch, gpuprof
x = torch.ones(8, 8)
for _ in range(24):
    x @ x
    gpuprof.step()
"""
CONFIGURATION = """\
[gate]
pairs = [2]
cumulative = "100000%"
[[target]]
script = "speed.py"
warmup = 0
timed = 20
profiled = 1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "speed.py").write_text(SCRIPT)
    (tmp_path / "gpuprof.toml").write_text(CONFIGURATION)
    return tmp_path


def test_the_noise_of_a_target_is_measured_and_planned_with(
    gpuprof: GpuprofCommand, folder: Path
) -> None:
    measured = gpuprof("gate", "calibrate", "--pairs", "2")

    assert measured.returncode == 0, measured.stderr
    # Two pairs of one session leave one degree of freedom.
    assert [row.split()[1::2] for row in measured.stdout.splitlines() if " time " in row] == [
        ["time", "1"]
    ]
    planned = gpuprof("gate", "plan", "--effect", "20%")
    assert planned.returncode == 0, planned.stderr
    assert "speed: from 1 session on " in planned.stdout


def test_a_baseline_is_saved_gated_against_and_its_gate_kept_in_a_history(
    gpuprof: GpuprofCommand, folder: Path
) -> None:
    # Two have to count; on a busy machine some are lost.
    saved = gpuprof("baseline", "save", "v1", "--processes", "4")

    assert saved.returncode == 0, saved.stderr
    assert saved.stdout == "Saved gpuprof-baselines/v1.json.gz: 4 processes of speed\n"
    (folder / "gpuprof-baselines" / "pinned").write_text("v1\n")

    gated = gpuprof("gate", "--baseline", "v1")
    assert gated.returncode == 0, gated.stderr
    assert "the baseline is of another session (v1, " in gated.stdout.replace("\n", " ")
    result = json.loads((folder / "gpuprof-gate" / "gate.json").read_text())
    assert result["advisory"] is True
    assert "time since v1" in [j["metric"]["name"] for j in result["judgements"]]

    added = gpuprof("history", "add", "gpuprof-gate", "--branch", "main", "--commit", "abc")
    assert added.returncode == 0, added.stderr
    history = History(folder / "gpuprof-history.sqlite")
    kept = history.values(metric="time")
    assert {(v.commit, v.branch) for v in kept} == {("abc", "main")}
    assert len({v.pair for v in kept}) == len(kept) >= 2
