"""Where `gpuprof run` puts its capture: nothing that is somebody else's is ever lost."""

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from fork_server import ForkServer
from training_script import FEW, write

from gpuprof.collectors import storage

Gpuprof = Callable[..., "subprocess.CompletedProcess[str]"]


def captures(folder: Path) -> list[str]:
    """Names of what looks like a capture, hidden folders too."""
    return sorted(path.name for path in folder.iterdir() if storage.is_capture(path))


@pytest.mark.parametrize(
    "make",
    [
        # Before the profiled steps, after them, and where nothing may stand there yet.
        "os.makedirs('results'); save('a'); train(9); save('b')",
        "train(9); os.makedirs('results', exist_ok=True); save('a'); save('b')",
        "train(9); os.mkdir('results'); save('a'); save('b')",
    ],
)
def test_checkpoints_in_a_folder_of_the_same_name_are_kept(
    tmp_path: Path, gpuprof: Gpuprof, make: str
) -> None:
    script = write(
        tmp_path,
        f"""
        def save(name):
            torch.save(model.state_dict(), f'results/{{name}}.pt')
        {make}
        """,
    )
    ours = gpuprof("run", *FEW, "-o", "results", script)
    assert (ours.returncode, ours.stdout) == (0, "")
    assert sorted(os.listdir(tmp_path / "results")) == ["a.pt", "b.pt"]
    assert captures(tmp_path) == ["results.gpuprof"]
    assert "results was not free; the capture is results.gpuprof" in ours.stderr
    assert ours.stderr.rstrip().endswith("gpuprof report results.gpuprof")


def test_files_put_into_the_early_capture_are_kept(tmp_path: Path, gpuprof: Gpuprof) -> None:
    script = write(
        tmp_path,
        """
        train(9)
        while not os.path.exists('out.gpuprof/manifest.json'):
            train(1)
        torch.save(model.state_dict(), 'out.gpuprof/checkpoint.pt')
        """,
    )
    ours = gpuprof("run", "-q", *FEW, "-o", "out.gpuprof", script)
    assert ours.returncode == 0
    assert os.listdir(tmp_path / "out.gpuprof") == ["checkpoint.pt"]
    assert captures(tmp_path) == ["out-2.gpuprof"]
    assert "the capture is out-2.gpuprof" in ours.stderr


@pytest.mark.parametrize(
    ("manifest", "more"),
    [
        ({"name": "web app", "version": 2}, "app.js"),
        ({"schema_version": 1, "ranks": [0]}, "app.js"),
        ([], "app.js"),
        # A capture of ours into which somebody has put a file.
        ({"schema_version": 1, "tool_version": "1", "source": "", "created_ns": 0, "ranks": [0]},
         "notes.txt"),
    ],
)  # fmt: skip
def test_force_leaves_a_folder_with_somebody_elses_files_alone(
    tmp_path: Path, gpuprof: Gpuprof, manifest: object, more: str
) -> None:
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / more).write_text("precious")
    ours = gpuprof("run", "-f", "-o", "app", "-c", "print('started')")
    assert (ours.returncode, ours.stdout) == (1, "")
    assert "will not be replaced; choose another -o" in ours.stderr
    assert len(ours.stderr.splitlines()) == 1
    assert sorted(os.listdir(folder)) == sorted(["manifest.json", more])


def test_force_replaces_a_capture(tmp_path: Path, gpuprof: Gpuprof) -> None:
    for status in (3, 4):
        done = gpuprof("run", "-q", "-f", "-o", "out", "-c", f"raise SystemExit({status})")
        assert (done.returncode, done.stderr) == (status, "")
    assert captures(tmp_path) == ["out"]
    assert storage.load(tmp_path / "out").processes[0].exit_code == 4


def test_a_page_and_its_capture_are_made_by_one_command_and_shown(
    tmp_path: Path,
    gpuprof: Gpuprof,
    gpuprof_environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    browser, shown = tmp_path / "browser", tmp_path / "shown"
    browser.write_text(f'#!/bin/sh\necho "$1" > {shown}\n')
    browser.chmod(0o755)
    monkeypatch.setitem(gpuprof_environment, "BROWSER", f"{browser} %s")
    page = tmp_path / "page.html"
    script = write(tmp_path, "train(9); os.chdir('/')")
    result = gpuprof("run", *FEW, "--open", "-o", "page.html", script)
    assert (result.returncode, result.stdout) == (0, "")
    assert result.stderr.rstrip().endswith(f"gpuprof: wrote {page}")
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>")
    assert captures(tmp_path) == ["page.gpuprof"]
    assert shown.read_text() == f"{page.as_uri()}\n"

    (tmp_path / "page.gpuprof").rename(tmp_path / "other.gpuprof")
    again = gpuprof("run", *FEW, "-o", "page.html", script)
    assert (again.returncode, again.stdout) == (1, "")
    assert f"{page} exists; choose another -o or pass --force to replace it" in again.stderr


@pytest.mark.parametrize("options", [["-o", "out.gpuprof"], []])
def test_runs_at_the_same_time_have_a_capture_each(
    tmp_path: Path, gpuprof_environment: dict[str, str], server: ForkServer, options: list[str]
) -> None:
    # All wait for each other, so that none has stored when the last one looks at the name.
    script = write(
        tmp_path,
        """
        import time
        open(f'{sys.argv[1]}.here', 'x').close()
        while sum(name.endswith('.here') for name in os.listdir()) < 3:
            time.sleep(0.01)
        sys.exit(int(sys.argv[1]))
        """,
    )
    command = [*server.command, "-m", "gpuprof", "run", *options, script]
    runs = [
        subprocess.Popen(
            [*command, str(number)],
            cwd=tmp_path,
            env=gpuprof_environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    told = [run.communicate(timeout=120)[1] for run in runs]
    assert [run.returncode for run in runs] == [0, 1, 2]
    for number, text in enumerate(told):
        name = text.split()[-1]
        assert text.rstrip().endswith(f"gpuprof report {name}")
        assert storage.load(tmp_path / name).processes[0].exit_code == number
    assert len(captures(tmp_path)) == 3


@pytest.mark.parametrize("options", [["-o", "out.gpuprof"], []])
def test_the_capture_is_where_the_run_was_started(
    tmp_path: Path, gpuprof: Gpuprof, options: list[str]
) -> None:
    script = write(tmp_path, "os.mkdir('work'); train(2); os.chdir('work'); train(9)")
    ours = gpuprof("run", *FEW, *options, script)
    assert ours.returncode == 0
    assert os.listdir(tmp_path / "work") == []
    (name,) = captures(tmp_path)
    assert ours.stderr.rstrip().endswith(f"gpuprof report {name}")


def test_a_block_that_changes_directory_has_its_capture(
    tmp_path: Path, gpuprof_environment: dict[str, str], server: ForkServer
) -> None:
    script = write(
        tmp_path,
        """
        import gpuprof
        os.mkdir('work')
        with gpuprof.profile('out.gpuprof', warmup=1, timed=2, profiled=1) as profiled:
            train(2)
            os.chdir('work')
            train(9)
        print(profiled.capture.steps.height > 0, os.listdir())
        """,
    )
    done = server.run(script, folder=tmp_path, environment=gpuprof_environment)
    assert done.stdout == "True []\n", done.stderr
    assert captures(tmp_path) == ["out.gpuprof"]


RANKS = """
import signal, time
import torch.distributed as dist
dist.init_process_group('gloo')
dist.all_reduce(torch.ones(1))
train(9)
dist.barrier()
if dist.get_rank() == int(sys.argv[1]):
    os.kill(os.getpid(), signal.SIGKILL)
while True:
    train(1)
"""


def test_the_ranks_that_were_there_are_stored_where_the_first_is_killed(
    tmp_path: Path, gpuprof_environment: dict[str, str], server: ForkServer
) -> None:
    killed = 0
    script = write(tmp_path, RANKS)
    # What a live run with the same name has stored so far.
    other = tmp_path / ".out.gpuprof.0badcafe-0.rank1.part"
    other.mkdir()
    (other / "manifest.json").write_text("{}")
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    launcher += ["--no-python", *server.command]
    done = subprocess.run(
        [sys.executable, *launcher, "-m", "gpuprof", "run", *FEW, "-o", "out.gpuprof", script,
         str(killed)],
        cwd=tmp_path,
        env={**gpuprof_environment, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )  # fmt: skip
    assert done.returncode == 1
    capture = storage.load(tmp_path / "out.gpuprof")
    assert capture.manifest.ranks == (0, 1)
    endings = [process.ending for process in capture.processes]
    assert endings[1 - killed] == "sigterm"
    assert endings[killed] == "killed"
    # Its parent may have asked for its exit status before we could look.
    how = "was killed by SIGKILL|ended without a word, killed or crashed"
    said = rf"rank {killed} ({how}): only its profiled steps"
    assert re.search(said, str(capture.processes[0]))
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == [other.name]


def test_a_capture_that_lost_its_folder_is_kept_elsewhere_and_told(
    tmp_path: Path, gpuprof: Gpuprof
) -> None:
    (tmp_path / "results").mkdir()
    source = "train(2)\nimport shutil\nshutil.rmtree('results')\nopen('results', 'w').close()"
    ours = gpuprof("run", "-q", *FEW, "-o", "results/a", write(tmp_path, source))
    assert (ours.returncode, ours.stdout) == (0, "")
    place = tmp_path / "a.gpuprof"
    said = f"gpuprof: {tmp_path}/results/a: Not a directory; the capture is {place}\n"
    assert ours.stderr == said
    assert storage.load(place).processes[0].ending == "finished"


def test_a_program_that_leaves_by_os_exit_does_not_hide_that_its_capture_is_lost(
    tmp_path: Path, gpuprof: Gpuprof
) -> None:
    source = """
    from gpuprof.profiler.run import recording
    recording.ProcessInfo = None
    os._exit(0)
    """
    ours = gpuprof("run", "-q", "-o", "out", write(tmp_path, source))
    assert ours.returncode == 1
    assert ours.stderr.startswith("gpuprof: the capture could not be stored: TypeError: ")


def test_without_torch_each_command_is_one_line_or_does_without(
    tmp_path: Path, gpuprof_environment: dict[str, str]
) -> None:
    capture = Path(__file__).parents[1] / "data" / "captures" / "h100_llama_block"
    source = f"""
    import sys
    sys.modules["torch"] = None
    from gpuprof.profiler.cli import main
    for command in (
        ["run", "-c", "print('the program')"], ["bench", "vector_add"], ["calibrate"],
        ["summary", {str(capture)!r}], ["analyze", {str(capture)!r}, "-q"],
        ["report", {str(capture)!r}, "-o", "a.md"], ["doctor", "--json"],
    ):
        code = main(command)
        print(command[0], code, file=sys.stderr)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)],
        cwd=tmp_path, env=gpuprof_environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    install = "pip install 'torch>=2.6'"
    assert done.stderr.splitlines() == [
        f"gpuprof: torch is needed to profile a program: {install}",
        "run 1",
        f"gpuprof: torch is needed to run gpuprof bench: {install}",
        "bench 1",
        f"gpuprof: torch is needed to measure ceilings: {install}",
        "calibrate 1",
        "summary 0",
        "analyze 0",
        "gpuprof: wrote a.md",
        "report 0",
        "doctor 0",
    ]
    assert "the program" not in done.stdout
