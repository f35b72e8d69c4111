"""`gpuprof gate` as users start it: exit codes, and what is told before anything is measured."""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from json_documents import read_answer

GpuprofCommand = Callable[..., "subprocess.CompletedProcess[str]"]

SCRIPT = """\
import os, sys, time
if "end-the-gate" in sys.argv:
    with open("pid", "x") as file:
        file.write(str(os.getpid()))
    os.kill(os.getppid(), int(sys.argv[-1]))
    time.sleep(600)
import torch, gpuprof
if "fail" in sys.argv:
    raise ValueError("boom")
x = torch.ones(8, 8)
if "tf32" in sys.argv:
    torch.backends.cuda.matmul.allow_tf32 = True
for _ in range(12):
    x @ x
    gpuprof.step()
"""
CONFIGURATION = """\
[gate]
pairs = [2]
[[budget]]
time = { regress = 20.0 }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "speed.py").write_text(SCRIPT)
    (tmp_path / "gpuprof.toml").write_text(CONFIGURATION)
    return tmp_path


def test_a_crash_of_the_head_is_5_and_its_last_line_is_told(
    gpuprof: GpuprofCommand, folder: Path
) -> None:
    done = gpuprof("gate", "-a", "speed.py", "-b", "speed.py fail")

    assert done.returncode == 5, done.stdout + done.stderr
    assert done.stdout.startswith("ERROR: 1 benchmark")
    assert "ValueError: boom" in done.stdout
    # A program that failed is not run again.
    assert done.stderr.count("gpuprof gate: ") == 2
    assert "ValueError: boom" in (folder / "gpuprof-gate/command/pair-000-B/output.txt").read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_gate_that_is_ended_takes_what_it_measures_with_it(
    cold_gpuprof: GpuprofCommand, folder: Path, number: signal.Signals
) -> None:
    # The gate is the parent of what it measures.
    done = cold_gpuprof("gate", "-a", f"speed.py end-the-gate {number.value}", "-b", "speed.py")

    assert done.returncode == 128 + number
    said = [line for line in done.stderr.splitlines() if not line.startswith("gpuprof gate: ")]
    assert said == (["gpuprof: interrupted"] if number == signal.SIGINT else [])
    with pytest.raises(ProcessLookupError):
        os.kill(int((folder / "pid").read_text()), 0)


def test_another_precision_is_3_and_named(gpuprof: GpuprofCommand, folder: Path) -> None:
    secret = "speed.py tf32 --api-key S3cr3t"
    done = gpuprof("gate", "-a", "speed.py", "-b", secret, "--json", "gate.json")

    assert done.returncode == 3, done.stdout + done.stderr
    assert done.stdout.startswith("INCOMPARABLE: 1 benchmark")
    assert "float32 matmul precision: highest against high" in done.stdout
    result = read_answer((folder / "gate.json").read_text())
    assert [j["reason"] for j in result["judgements"]] == ["environment-differs"]
    assert len(result["processes"]) == 2
    written = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    assert len(written) > 10
    assert not any(b"S3cr3t" in content for content in written)
    assert "S3cr3t" not in done.stdout + done.stderr
    assert result["head"]["label"] == "speed.py tf32 --api-key ***"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give --base REF, such as --base main, --baseline NAME, or two commands"),
        (("-a", "speed.py"), "-a and -b go together"),
        (("--base", "main"), "there is nothing to measure: add a [[target]] to gpuprof.toml"),
        (("-a", "x.py", "-b", "y.py", "-o", "other"), "other is no gate's result"),
        (("-a", "x.py", "-b", "y.py", "--junit", "no/x.xml"), "is not a folder"),
        (("-a", "x.py", "-b", "python", "--dry-run"), "the command of command is empty"),
    ],
)
def test_wrong_use_is_one_line_and_measures_nothing(
    gpuprof: GpuprofCommand, folder: Path, arguments: tuple[str, ...], said: str
) -> None:
    (folder / "other").mkdir()
    (folder / "other" / "thesis.tex").touch()

    done = gpuprof("gate", *arguments)

    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.returncode == 2
    assert not (folder / "gpuprof-gate").exists()


def test_a_dry_run_prints_both_commands_and_runs_none(
    gpuprof: GpuprofCommand, folder: Path
) -> None:
    with (folder / "gpuprof.toml").open("a") as file:
        file.write("\n[[target]]\nscript = 'speed.py'\ntimed = 4\n")
    for command in (
        ("init", "-q"),
        ("add", "."),
        ("-c", "user.email=a@b.c", "-c", "user.name=a", "commit", "-qm", "one"),
    ):
        subprocess.run(["git", *command], cwd=folder, check=True)

    done = gpuprof("gate", "--base", "HEAD", "--dry-run")

    assert done.returncode == 0, done.stderr
    base, head = done.stdout.splitlines()
    assert base.startswith("HEAD (")
    assert head.startswith(f"the working tree: (cd {folder}; ")
    assert all("gpuprof run" in line and "--timed 4" in line for line in (base, head))
    assert {path.name for path in folder.iterdir()} == {".git", "gpuprof.toml", "speed.py"}


def test_a_dry_run_says_all_that_is_wrong_and_measures_nothing(
    gpuprof: GpuprofCommand, folder: Path
) -> None:
    with (folder / "gpuprof.toml").open("a") as file:
        file.write("\n[[budget]]\nmatch = 'infer'\ntime = { regress = '3%' }\n")
        file.write("[[waiver]]\nmatch = 'command'\nreason = 'x'\nexpires = 2020-01-01\n")

    done = gpuprof("gate", "-a", "old.py", "-b", "speed.py", "--dry-run")
    measured = gpuprof("gate", "-a", "old.py", "-b", "speed.py")

    assert done.returncode == 2, done.stderr
    assert done.stdout.splitlines()[2:] == [
        "! old.py: there is no old.py (target command); the gate would end without a verdict",
        "! the budget for 'infer' matches no target",
        "! the waiver for 'command' expired on 2020-01-01",
    ]
    assert measured.returncode == 2
    assert measured.stderr == "gpuprof: old.py: there is no old.py (target command)\n"
    assert not (folder / "gpuprof-gate").exists()
