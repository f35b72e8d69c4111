"""Secrets among a program's arguments are nowhere in what gpuprof writes, which has the umask."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from training_script import FEW, write

from gpuprof.collectors import storage

Gpuprof = Callable[..., "subprocess.CompletedProcess[str]"]
SECRET = "S3cr3t-4242"
ARGUMENTS = ("--wandb-key", SECRET, f"API_KEY={SECRET}", f"https://me:{SECRET}@host/x")


def test_a_secret_reaches_the_program_and_nothing_that_is_written(
    tmp_path: Path, gpuprof_environment: dict[str, str]
) -> None:
    script = write(tmp_path, "train(9)\nprint(sys.argv[1:])")
    done = subprocess.run(
        [sys.executable, "-m", "gpuprof", "run", "-v", *FEW, "-o", "o.html", script, *ARGUMENTS],
        cwd=tmp_path,
        env=gpuprof_environment,
        capture_output=True,
        text=True,
        umask=0o027,
        check=True,
    )
    assert done.stdout == f"{list(ARGUMENTS)}\n"
    assert SECRET not in done.stderr
    written = [tmp_path / "o.html", *(tmp_path / "o.gpuprof").rglob("*")]
    files = [path for path in written if path.is_file()]
    assert len(files) > 5
    for path in files:
        assert SECRET.encode() not in path.read_bytes(), path
    assert {path.stat().st_mode & 0o777 for path in files} == {0o640}
    (process,) = storage.load(tmp_path / "o.gpuprof").processes
    assert process.command[1:] == ("--wandb-key", "***", "API_KEY=***", "https://me:***@host/x")


def test_without_arguments_the_name_alone_is_kept(tmp_path: Path, gpuprof: Gpuprof) -> None:
    script = write(tmp_path, "train(1)")
    gpuprof("run", "-q", "--no-arguments", "-o", "o.gpuprof", script, "--lr", "3")
    (process,) = storage.load(tmp_path / "o.gpuprof").processes
    assert process.command == (script,)
