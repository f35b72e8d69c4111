"""How far a long command is: on stderr, moving where that is a terminal, else perhaps in lines."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gpuprof.reports.console.streams import NoteStream, write_note

# Told before each part: what runs now, how many parts are done and how many are planned.
PartProgress = Callable[[str, int, int], None]
# Told what is being done now.
StageProgress = Callable[[str], None]


@contextmanager
def showing_parts(command: str = "", *, hidden: bool = False) -> Iterator[PartProgress]:
    """A progress that shows on stderr while the context is open.

    Where that is no terminal it prints a line a part, which begins with `command`; without one
    nothing. The parts of a `command` say themselves how long the rest takes; that of others is
    estimated here. `hidden`: nothing anywhere, as on ranks other than the first.
    """
    if hidden or not can_move():
        yield _line_writer("" if hidden else command)
        return
    from rich import progress

    from gpuprof.reports.console.terminal import stderr

    console = stderr()
    with progress.Progress(
        progress.SpinnerColumn(_spinner(console.encoding)),
        progress.MofNCompleteColumn(),
        progress.BarColumn(bar_width=20),
        progress.TimeElapsedColumn(),
        *(() if command else (progress.TimeRemainingColumn(),)),
        progress.TextColumn("{task.description}", markup=False),
        console=console,
        transient=True,
    ) as bar:
        task = bar.add_task("")

        def show(what: str, done: int, planned: int) -> None:
            bar.update(task, description=what, completed=done, total=planned)

        yield show


@contextmanager
def showing_stages(label: str = "", *, hidden: bool = False) -> Iterator[StageProgress]:
    """Says on a terminal what is being done, after `label`, and leaves no trace of it.

    Elsewhere, and where `hidden`, nothing.
    """
    if hidden or not can_move():
        yield lambda _: None
        return
    from rich.text import Text

    from gpuprof.reports.console.terminal import stderr

    console = stderr()
    with console.status(Text(label), spinner=_spinner(console.encoding)) as status:
        yield lambda what: status.update(Text(f"{label}: {what}" if label else what))


def can_move() -> bool:
    """Whether stderr is a terminal of a person, on which a line can be written again.

    A CI system may give its jobs a terminal, and keeps all that is ever written there.
    """
    is_dumb = os.environ.get("TERM", "") in ("", "dumb", "unknown")
    return NoteStream(sys.stderr).isatty() and not is_dumb and not os.environ.get("CI")


def _spinner(encoding: str) -> str:
    """The name that rich has for one whose characters `encoding` has."""
    return "dots" if encoding.startswith("utf") else "line"


def _line_writer(command: str) -> PartProgress:
    def show(what: str, done: int, planned: int) -> None:
        if command:
            write_note(f"{command}: {done}/{planned} {what}")

    return show
