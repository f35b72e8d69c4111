"""How far the gate is: a bar on stderr where that is a terminal, else a line a process."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from gpuprof.profiler.gate.engine import Progress


@contextmanager
def showing_progress() -> Iterator[Progress]:
    """A progress for `run_gate` that shows on stderr while the context is open."""
    from rich import progress
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _print_line
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


def _print_line(what: str, done: int, planned: int) -> None:
    print(f"gpuprof gate: {done}/{planned} {what}", file=sys.stderr, flush=True)
