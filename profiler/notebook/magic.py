"""`%%gpuprof`: profiles what a cell of a notebook runs, and shows the report below it."""

import atexit
import os
import shutil
from pathlib import Path
from typing import Any, Final

from IPython.core.error import UsageError
from IPython.core.magic_arguments import MagicArgumentParser

from gpuprof.collectors.errors import CommandError
from gpuprof.collectors.files.temporary import new_temporary_folder
from gpuprof.profiler.api import profile
from gpuprof.profiler.commands.step_options import STEP_KINDS
from gpuprof.profiler.notebook.formatters import show_in

_NAME: Final = "gpuprof"


def load(shell: Any) -> None:
    """What `%load_ext gpuprof` does."""
    # Kineto tells of each start and stop of a profiler; it looks at this when torch is imported.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    show_in(shell)
    shell.register_magic_function(_CellMagic(shell).run, "cell", _NAME)


class _CellMagic:
    """The magic of one shell."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def run(self, line: str, cell: str) -> profile:
        """Profile what this cell runs, and show the report.

        %%gpuprof [-o CAPTURE] [-f] [--warmup N] [--timed N] [--profiled N] [--steps KIND]
        [--step-range NAME] [--watch]

        The options are those of `gpuprof run`. Without -o the capture lasts as long as the
        session. The result is the `gpuprof.profile` of the cell, with `analysis` and `capture`.
        """
        arguments = _parser().parse_argstring(line)  # type: ignore[no-untyped-call]
        try:
            profiled = profile(
                arguments.output or _temporary(),
                warmup=arguments.warmup,
                timed=arguments.timed,
                profiled=arguments.profiled,
                steps=arguments.steps,
                step_range=arguments.step_range,
                watch=arguments.watch,
                force=arguments.force,
            )
            with profiled:
                result = self._shell.run_cell(cell, store_history=False)
        except CommandError as error:
            raise UsageError(str(error)) from None
        if not result.success:
            # Its traceback has been shown; the notebook must not go on as if nothing had been.
            raise UsageError(f"the cell failed; its capture is {profiled.output}")
        return profiled


def _parser() -> MagicArgumentParser:
    parser = MagicArgumentParser(f"%%{_NAME}")  # type: ignore[no-untyped-call]
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("-f", "--force", action="store_true")
    parser.add_argument("--warmup", type=int)
    parser.add_argument("--timed", type=int)
    parser.add_argument("--profiled", type=int, default=3)
    parser.add_argument("--steps", choices=STEP_KINDS)
    parser.add_argument("--step-range")
    parser.add_argument("--watch", action="store_true")
    return parser


def _temporary() -> Path:
    folder = new_temporary_folder("cell")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder / "cell.gpuprof"
