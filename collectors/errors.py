"""The errors gpuprof raises on purpose.

GpuprofError
 +-- CommandError            a command cannot do what was asked; carries the exit code
 +-- MissingDependencyError  an optional package is absent; carries the pip line
 +-- CaptureError            a file is not what it should be; carries file, place and remedy
 +-- CollectorError          a live process could not be watched

They are caught once, in `gpuprof.profiler.cli.main`, and printed as one line on stderr.
"""

from collections.abc import Sequence
from pathlib import Path

from gpuprof.collectors.distribution import install_command
from gpuprof.collectors.plain_text import printable, shortened

# Of an error, whose line begins with "gpuprof: ", and of what it quotes from elsewhere, such as a
# file or another library.
LONGEST_LINE = 291
_LONGEST_QUOTE = 140


class GpuprofError(Exception):
    """Anything the user can act on; `exit_code` is what the command line exits with."""

    exit_code = 1


class CommandError(GpuprofError):
    """A command cannot do what was asked."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class MissingDependencyError(GpuprofError):
    """A package that this feature needs is not installed."""

    def __init__(self, package: str, purpose: str, requirement: str) -> None:
        self.remedy = install_command(requirement)
        super().__init__(f"{package} is needed to {purpose}: {self.remedy}")


# The oldest release that is supported, as in pyproject.toml.
TORCH = "torch>=2.6"


class CaptureError(GpuprofError):
    """A capture, trace or export that cannot be read.

    `place` is where in the file it went wrong ("byte 1024", "table kernels"), `expected` what
    should have stood there, `remedy` what the user can do, and `remarks` are whole sentences about
    what else was found in the file, of which those are told that one line has room for.
    """

    def __init__(
        self,
        path: str | Path,
        problem: str,
        *,
        place: str = "",
        expected: str = "",
        remedy: str = "",
        remarks: Sequence[str] = (),
    ) -> None:
        where = f"{path}, {place}" if place else f"{path}"
        parts = [f"{where}: {problem}"]
        if expected:
            parts.append(f"expected {expected}")
        if remedy:
            parts.append(remedy)
        sentence = "; ".join(parts)
        most = LONGEST_LINE + len(str(path))
        for number, remark in enumerate(remarks):
            longer = f"{sentence} {remark}" if number else f"{sentence}. {remark}"
            # Whole sentences, as many as the line holds.
            if len(longer) > most:
                break
            sentence = longer
        super().__init__(sentence)
        self.path = Path(path)
        self.problem = problem
        self.place = place
        self.expected = expected
        self.remedy = remedy


class CollectorError(GpuprofError):
    """A live process could not be watched as asked."""


def reason(error: BaseException) -> str:
    """The first line of what `error` says, or its type where it says nothing.

    For errors of code that is not ours, whose own text may fail to come.
    """
    try:
        lines = str(error).strip().splitlines()
    except Exception:
        lines = []
    return shortened(printable(lines[0] if lines else type(error).__name__), LONGEST_LINE)


def problem_of(error: Exception) -> str:
    """What `error` says, as a clause of a message that names the file itself."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return shortened(reason(error), _LONGEST_QUOTE)


def describe(error: BaseException, typed: Sequence[str] = ()) -> str:
    """What the command line prints: one printable line of at most `LONGEST_LINE` characters.

    What only we raise, and the system, explains itself. Places are not counted, so that long ones
    stand in it whole: the path of a `CaptureError`, and what the user `typed`.
    """
    places = list(typed)
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
        places.append(str(error.filename))
    elif isinstance(error, GpuprofError):
        text = str(error)
        if isinstance(error, CaptureError):
            places.append(str(error.path))
    else:
        is_own = isinstance(error, OSError)
        text = reason(error) if is_own else f"{type(error).__name__}: {reason(error)}"
    uncounted = sum(len(place) for place in set(places) if place in text)
    return shortened(printable(text), LONGEST_LINE + uncounted)
