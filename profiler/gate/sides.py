"""The two programs of a gate, each in a folder of its own."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from gpuprof.collectors.errors import CommandError
from gpuprof.profiler.child_processes import run_child
from gpuprof.profiler.configuration.targets import Target
from gpuprof.profiler.gate.worktrees import git
from gpuprof.roofline.gate.series import Side


@dataclass(frozen=True)
class SideProgram:
    """One side: what it runs, and where."""

    side: Side
    # For people: "base 3f2a91c", "the working tree".
    label: str
    folder: Path
    targets: tuple[Target, ...]
    # The interpreter, absolute or on PATH.
    python: str
    # Folders put before everything installed, absolute.
    python_path: tuple[Path, ...] = ()
    commit: str | None = None
    # Set beside that in the environment of its processes; None removes.
    variables: Mapping[str, str | None] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        """The environment of its processes."""
        given = {**os.environ, **self.variables}
        environment = {name: value for name, value in given.items() if value is not None}
        if self.python_path:
            former = environment.get("PYTHONPATH")
            folders = [*map(str, self.python_path), *([former] if former else [])]
            environment["PYTHONPATH"] = os.pathsep.join(folders)
        return environment

    def lacks(self, target: Target) -> bool:
        """Whether the script of `target` is not there."""
        return target.script is not None and not (self.folder / target.script).exists()


def commit_of(reference: str, folder: Path) -> str:
    """The commit that `reference` names in the repository around `folder`.

    Raises `CommandError` (exit 2) where there is no repository or no such commit.
    """
    found = git(["rev-parse", "--verify", "--quiet", f"{reference}^{{commit}}"], folder)
    if found.returncode == 0:
        return found.stdout.strip()
    if git(["rev-parse", "--git-dir"], folder).returncode != 0:
        raise CommandError(f"--base needs a git repository; {folder} is in none", exit_code=2)
    raise CommandError(
        f"--base {reference!r} is no commit here; fetch it first (git fetch origin {reference})",
        exit_code=2,
    )


def commit_as_it_stands(folder: Path) -> str | None:
    """The commit that is checked out around `folder`; None where files differ from it."""
    if shutil.which("git") is None:
        return None
    changed = git(["status", "--porcelain"], folder)
    if changed.returncode != 0 or changed.stdout.strip():
        return None
    return commit_of("HEAD", folder)


def branch_of(folder: Path) -> str | None:
    """The branch that is checked out around `folder`; None for none, such as a detached HEAD."""
    if shutil.which("git") is None:
        return None
    return git(["symbolic-ref", "--short", "--quiet", "HEAD"], folder).stdout.strip() or None


def set_up(command: str, program: SideProgram) -> None:
    """Run a side's set-up command in its folder. Raises `CommandError` where it fails."""
    if not command:
        return
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as complaints:
        status = run_child(command, cwd=program.folder, stdout=printed, stderr=complaints)
        said = _last_line(complaints) or _last_line(printed)
    if status != 0:
        problem = f"the set-up of {program.label} ended with {status}: {said}"
        raise CommandError(problem, exit_code=2)


def _last_line(file: IO[bytes]) -> str:
    file.seek(0)
    return "".join(file.read().decode(errors="replace").strip().splitlines()[-1:])
