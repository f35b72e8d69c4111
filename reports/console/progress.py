"""How far a long command is: a bar on stderr where that is a terminal, else perhaps lines."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Told before each part: what runs now, how many parts are done and how many are planned.
Progress = Callable[[str, int, int], None]


@contextmanager
def showing_progress(command: str = "", *, hidden: bool = False) -> Iterator[Progress]:
    """A progress that shows on stderr while the context is open.

    Where that is no terminal it prints a line a part, which begins with `command`; without one
    nothing. `hidden`: nothing anywhere, as on ranks other than the first.
    """
    from rich import progress
    from rich.console import Console

    console = Console(stderr=True)
    if hidden or not console.is_terminal:
        yield _line_printer("" if hidden else command)
        return
    with progress.Progress(
        progress.SpinnerColumn(),
        progress.MofNCompleteColumn(),
        progress.BarColumn(bar_width=20),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.description}", markup=False),
        console=console,
        transient=True,
    ) as bar:
        task = bar.add_task("")

        def show(what: str, done: int, planned: int) -> None:
            bar.update(task, description=what, completed=done, total=planned)

        yield show


def _line_printer(command: str) -> Progress:
    def show(what: str, done: int, planned: int) -> None:
        if command:
            print(f"{command}: {done}/{planned} {what}", file=sys.stderr, flush=True)

    return show
