"""The progress bar of a bench: on stderr, and only where that is a terminal."""

from types import TracebackType

from rich import progress
from rich.console import Console


class Progress:
    """A context manager that shows how many versions are done and which is running."""

    def __init__(self, total: int, *, shown: bool) -> None:
        console = Console(stderr=True)
        self._bar = progress.Progress(
            progress.SpinnerColumn(),
            progress.MofNCompleteColumn(),
            progress.BarColumn(bar_width=20),
            progress.TimeElapsedColumn(),
            progress.TextColumn("{task.description}", markup=False),
            console=console,
            transient=True,
            disable=not (shown and console.is_terminal),
        )
        self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def show(self, what: str) -> None:
        """Say what is running now."""
        self._bar.update(self._task, description=what)

    def advance(self) -> None:
        """One more version is done."""
        self._bar.advance(self._task)
