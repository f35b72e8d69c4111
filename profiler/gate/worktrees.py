"""Worktrees of commits, which are removed at the end, and those that a killed gate left."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from gpuprof.collectors.errors import CommandError
from gpuprof.collectors.files.temporary import WORKTREE, left_behind, new_temporary_folder
from gpuprof.profiler.child_processes import ending_signals_raise

_NAME: Final = "base"


@contextmanager
def checked_out(commit: str, folder: Path) -> Iterator[Path]:
    """A worktree of `commit`; yields the folder in it that stands for `folder`.

    It is removed at the end, whatever happened in it.
    """
    top = Path(git(["rev-parse", "--show-toplevel"], folder).stdout.strip())
    with ending_signals_raise():
        _remove_left_behind()
        parent = new_temporary_folder(WORKTREE)
        worktree = parent / _NAME
        try:
            made = git(["worktree", "add", "--detach", str(worktree), commit], folder)
            if made.returncode != 0:
                problem = " ".join(made.stderr.strip().splitlines()[-1:])
                raise CommandError(f"no worktree of {commit[:12]} could be made: {problem}")
            inside = worktree / folder.resolve().relative_to(top.resolve())
            if not inside.is_dir():
                raise CommandError(f"{commit[:12]} has no folder {inside.relative_to(worktree)}")
            yield inside
        finally:
            _remove(parent, folder)


def _remove_left_behind() -> None:
    for purpose, parent in left_behind(Path(tempfile.gettempdir())):
        if purpose == WORKTREE:
            # Of any repository: its worktree knows which.
            worktree = parent / _NAME
            _remove(parent, worktree if worktree.is_dir() else parent)


def _remove(parent: Path, repository: Path) -> None:
    """Remove the worktree in `parent`, also from the list of its repository."""
    git(["worktree", "remove", "--force", "--force", str(parent / _NAME)], repository)
    shutil.rmtree(parent, ignore_errors=True)


def git(arguments: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run git in `folder`. Raises `CommandError` where it is not installed."""
    try:
        return subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise CommandError("git is not installed; give two commands instead of --base") from error
