"""The files that a gate leaves: in its own folder, where asked, and where GitHub wants them."""

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuprof.collectors.errors import CommandError
from gpuprof.collectors.files.writing import (
    refuse_existing,
    refuse_unwritable_folder,
    told_of,
    write_file,
)
from gpuprof.reports.console.streams import write_bytes, write_commands
from gpuprof.reports.console.terminal import stdout
from gpuprof.reports.gate.annotations import render_annotations
from gpuprof.reports.gate.junit import render_junit
from gpuprof.reports.gate.markdown import render_comment, render_markdown
from gpuprof.reports.gate.page import render_html
from gpuprof.reports.gate.terminal import render_gate
from gpuprof.reports.json_answers.rendering import render_json
from gpuprof.reports.json_answers.schemas import GATE
from gpuprof.roofline.gate.result import GATE_FILE, GateResult

PAGE_FILE = "report.html"
# Marks a folder as ours from the start, and keeps it out of commits.
_IGNORE_FILE = ".gitignore"
_IGNORE = "# made by gpuprof gate\n*\n"


def _json(result: GateResult) -> str:
    return render_json(GATE, result).decode()


# By the option that asks for it.
FORMS: Mapping[str, Callable[[GateResult], str]] = {
    "json": _json,
    "html": render_html,
    "markdown": render_markdown,
    "comment": render_comment,
    "junit": render_junit,
}


@dataclass(frozen=True)
class Outputs:
    """Where the results of one gate go."""

    folder: Path
    # Of `FORMS`, those that were asked for.
    files: Mapping[str, Path]
    # Whether stdout has the result as JSON, and nothing else.
    prints_json: bool = False

    def refuse_existing(self, *, force: bool) -> None:
        """Raise `CommandError` for what is in the way, before anything is measured."""
        if self.folder.exists():
            self._refuse_folder(force=force)
        refuse_unwritable_folder(self.folder, option="-o")
        for form, file in self.files.items():
            if file.absolute().parent != self.folder.absolute():
                refuse_existing(file, force=force, option=f"--{form}")

    def _refuse_folder(self, *, force: bool) -> None:
        folder = self.folder
        if not folder.is_dir():
            raise CommandError(f"{folder} is a file; choose another -o", exit_code=2)
        if not any(folder.iterdir()):
            return
        ignore = folder / _IGNORE_FILE
        if not ignore.is_file() or ignore.read_text(errors="replace") != _IGNORE:
            raise CommandError(f"{folder} is no gate's result; choose another -o", exit_code=2)
        if not force:
            raise CommandError(f"{folder} exists; choose another -o or pass --force", exit_code=2)

    def prepare(self) -> None:
        """Make the folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / _IGNORE_FILE).write_text(_IGNORE)
        # Nothing old may stand beside new captures where the gate is interrupted.
        for name in (GATE_FILE, PAGE_FILE):
            (self.folder / name).unlink(missing_ok=True)
        for target in {path.parent for path in self.folder.glob("*/pair-*")}:
            shutil.rmtree(target)

    def write(self, result: GateResult, environment: Mapping[str, str] | None = None) -> None:
        """Print the verdicts and write every file; on GitHub also the summary and annotations."""
        environment = os.environ if environment is None else environment
        try:
            _write(self.folder / GATE_FILE, _json(result))
            _write(self.folder / PAGE_FILE, render_html(result))
            for form, file in self.files.items():
                _write(file, FORMS[form](result))
        finally:
            # Also where the disk is full.
            if self.prints_json:
                write_bytes(_json(result).encode())
            else:
                render_gate(result, stdout(), self.folder)
        if summary := environment.get("GITHUB_STEP_SUMMARY"):
            # Other steps' words stand in the same file.
            with told_of(Path(summary)), Path(summary).open("a", encoding="utf-8") as stream:
                stream.write(render_markdown(result))
        if environment.get("GITHUB_ACTIONS") == "true":
            folder = _folder_in_repository(environment)
            # GitHub reads them on either stream.
            lines = render_annotations(result, folder=folder)
            write_commands(lines, on_stderr=self.prints_json)


def _write(file: Path, text: str) -> None:
    write_file(file, text.encode())


def _folder_in_repository(environment: Mapping[str, str]) -> str:
    """The working directory as annotations need it, relative to the checkout."""
    workspace = environment.get("GITHUB_WORKSPACE")
    here = Path.cwd()
    if not workspace or not here.is_relative_to(Path(workspace).resolve()):
        return ""
    return here.relative_to(Path(workspace).resolve()).as_posix()
