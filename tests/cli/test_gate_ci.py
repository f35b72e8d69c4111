"""The examples for CI services: they parse, and their commands run as they stand."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from junitparser import JUnitXml

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "ci"

SCRIPT = """\
import torch, gpuprof
x = torch.ones(8, 8)
for _ in range(12):
    x @ x
    gpuprof.step()
"""
CONFIGURATION = """\
[gate]
pairs = [2]
[[target]]
script = "speed.py"
warmup = 1
timed = 4
profiled = 1
[[budget]]
# Without statistics, so that two pairs on a busy machine decide it.
time = { regress = 20.0 }
kernels = { max_new = 0 }
"""


@pytest.fixture
def merge_request(tmp_path: Path) -> Path:
    """A repository whose last commit, a merge, adds a kernel to a step."""
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "gpuprof.toml").write_text(CONFIGURATION)
    (folder / "speed.py").write_text(SCRIPT)
    commit(folder, "base")
    git(folder, "checkout", "-q", "-b", "change")
    (folder / "speed.py").write_text(SCRIPT.replace("x @ x", "(x @ x).cumsum(0)"))
    commit(folder, "a kernel more")
    git(folder, "checkout", "-q", "main")
    git(folder, *IDENTITY, "merge", "-q", "--no-ff", "-m", "merge", "change")
    return folder


IDENTITY = ("-c", "user.email=a@b.c", "-c", "user.name=a")


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def commit(folder: Path, message: str) -> None:
    git(folder, "add", ".")
    git(folder, *IDENTITY, "commit", "-q", "-m", message)


def example(name: str) -> Any:
    return msgspec.yaml.decode((EXAMPLES / name).read_bytes())


def shell(
    command: str, folder: Path, environment: dict[str, str]
) -> "subprocess.CompletedProcess[str]":
    """`command` as a runner's shell runs it, with this `gpuprof` first on PATH."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        ["bash", "-e", "-c", command],
        cwd=folder,
        env={**environment, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_github_job_fails_a_change_with_annotations_a_summary_and_a_comment(
    merge_request: Path, gpuprof_environment: dict[str, str], tmp_path: Path
) -> None:
    steps = example("github.yml")["jobs"]["gate"]["steps"]
    (command,) = [step["run"] for step in steps if "gpuprof gate" in step.get("run", "")]
    summary = tmp_path / "summary.md"

    done = shell(
        command,
        merge_request,
        {
            **gpuprof_environment,
            "GITHUB_ACTIONS": "true",
            "GITHUB_WORKSPACE": str(merge_request),
            "GITHUB_STEP_SUMMARY": str(summary),
        },
    )

    assert done.returncode == 1, done.stdout + done.stderr
    (error,) = re.findall(r"^::error .*$", done.stdout, re.MULTILINE)
    # The line that launches the new kernel.
    assert error.startswith("::error file=speed.py,line=4,title=gpuprof gate%3A speed kernel names")
    body = (merge_request / "gate.md").read_text()
    assert summary.read_text() == body.partition("\n")[2]
    (upload,) = [s["with"]["path"] for s in steps if "upload-artifact" in s.get("uses", "")]
    assert [name for name in upload.split() if not (merge_request / name).is_file()] == []
    # The comment is found again by its first line, and the gate leaves nothing to commit but it.
    assert body.startswith("<!-- gpuprof gate -->\n")
    assert git(merge_request, "status", "--short").splitlines() == ["?? gate.md", "?? gate.xml"]
    assert len(git(merge_request, "worktree", "list").splitlines()) == 1


def test_the_gitlab_job_passes_what_is_the_same_with_its_test_results(
    merge_request: Path, gpuprof_environment: dict[str, str]
) -> None:
    job = example("gitlab.yml")["gate"]
    (command,) = job["script"]

    done = shell(
        command,
        merge_request,
        {
            **gpuprof_environment,
            "CI_MERGE_REQUEST_DIFF_BASE_SHA": git(merge_request, "rev-parse", "change"),
        },
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "::error" not in done.stdout
    suite = JUnitXml.fromfile(str(merge_request / job["artifacts"]["reports"]["junit"]))
    assert (suite.failures, suite.errors) == (0, 0)
    assert suite.tests >= 3
    assert [p for p in job["artifacts"]["paths"] if not (merge_request / p).is_file()] == []
