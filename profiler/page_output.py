"""Where the page of a capture goes, and whether a browser shows it."""

import os
import sys
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpuprof.collectors.files.writing import refuse_existing, write_file

if TYPE_CHECKING:
    from gpuprof.roofline.analysis import Analysis

PAGE_SUFFIX: Final = ".html"
NO_BROWSER: Final = "no browser can open it here"
# Without any of these what `webbrowser` finds on Linux runs in the terminal, and takes it over.
_DISPLAYS: Final = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


@dataclass(frozen=True)
class PageOutput:
    """An HTML report that is to be written."""

    path: Path
    # Show it in a browser once it is there.
    opens: bool

    def refuse_existing(self, *, force: bool) -> None:
        """Raise `CommandError`, before any work, where the page cannot be written."""
        refuse_existing(self.path, force=force)

    def write(self, analysis: "Analysis") -> str:
        """Write the page, show it if that is asked for, and return a sentence of both.

        Raises `OSError`.
        """
        from gpuprof.reports.html.page import render_html

        write_file(self.path, render_html(analysis).encode())
        unseen = self.opens and not show(self.path.absolute().as_uri())
        return f"wrote {self.path}" + (f"; {NO_BROWSER}: copy the file to where one is" * unseen)


def show(address: str) -> bool:
    """Whether a browser was asked to show `address`."""
    if sys.platform == "linux" and not any(os.environ.get(name) for name in _DISPLAYS):
        return False
    return webbrowser.open(address)
