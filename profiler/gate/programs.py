"""Makes the two programs of a gate ready: folders, interpreters, set-up."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpuprof.collectors.errors import CommandError
from gpuprof.profiler.configuration.gate_settings import GateSettings
from gpuprof.profiler.configuration.targets import Target
from gpuprof.profiler.gate.sides import (
    SideProgram,
    commit_as_it_stands,
    commit_of,
    set_up,
)
from gpuprof.profiler.gate.worktrees import checked_out
from gpuprof.roofline.gate.series import Side

WORKING_TREE = "the working tree"


@dataclass(frozen=True)
class Preparation:
    """What both sides have in common."""

    # Where the head's programs run.
    folder: Path
    settings: GateSettings

    def program(
        self,
        side: Side,
        label: str,
        folder: Path,
        targets: tuple[Target, ...],
        *,
        commit: str | None = None,
    ) -> SideProgram:
        """One side, set up. Raises `CommandError` where its set-up or interpreter fails."""
        program = SideProgram(
            side=side,
            label=label,
            folder=folder,
            targets=targets,
            python=self._python(folder),
            python_path=tuple((folder / part).resolve() for part in self.settings.python_path),
            commit=commit,
        )
        set_up(self.settings.setup, program)
        if shutil.which(program.python) is None:
            raise CommandError(
                f"{label}: there is no interpreter {program.python}; set gate.python or gate.setup",
                exit_code=2,
            )
        return program

    def head(self, targets: tuple[Target, ...]) -> SideProgram:
        """The working tree."""
        return self.program(
            "B", WORKING_TREE, self.folder, targets, commit=commit_as_it_stands(self.folder)
        )

    @contextmanager
    def base(self, reference: str, targets: tuple[Target, ...]) -> Iterator[SideProgram]:
        """A worktree of the commit that `reference` names, removed at the end."""
        commit = commit_of(reference, self.folder)
        with checked_out(commit, self.folder) as folder:
            label = f"{reference} ({commit[:7]})"
            yield self.program("A", label, folder, targets, commit=commit)

    def _python(self, folder: Path) -> str:
        if not self.settings.python:
            return sys.executable
        if Path(self.settings.python).name == self.settings.python:
            # A bare name is looked up on PATH.
            return self.settings.python
        # Not resolved: a virtual environment's interpreter is a link that must be kept.
        return str((folder / self.settings.python).absolute())
