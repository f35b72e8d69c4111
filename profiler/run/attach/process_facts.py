"""What Linux tells of another process, and whether gpuprof can attach to it."""

import os
import re
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from gpuprof.collectors.errors import CommandError
from gpuprof.profiler.run.script import RunTarget

_PROC: Final = Path("/proc")
_PTRACE_SCOPE: Final = Path("/proc/sys/kernel/yama/ptrace_scope")
# Of an extension module, as `_C.cpython-314t-x86_64-linux-gnu.so` (PEP 3149), of the library, or of
# the executable itself.
_TAG: Final = re.compile(r"\.cpython-(\d)(\d+t?)-|^(?:lib)?python(\d)\.(\d+t?)(?:\.so.*)?$")
_PYTHON: Final = re.compile(r"^(?:lib)?python")
_TORCH: Final = "libtorch"
_DELETED: Final = " (deleted)"
# Options of python that are followed by a value (docs.python.org/3/using/cmdline.html).
_WITH_VALUE: Final = ("-W", "-X", "--check-hash-based-pycs")


@dataclass(frozen=True)
class ProcessFacts:
    """One process that may be attached to."""

    process: int
    user: int
    command: tuple[str, ...]
    is_python: bool
    # "3.14", or "3.14t" without the interpreter's lock; None where no file tells.
    python: str | None
    has_torch: bool
    # Whether its numbers of processes and its files are ours too.
    is_in_our_container: bool

    @property
    def target(self) -> RunTarget:
        """What it runs."""
        return target_of(self.command)


def facts_of(process: int) -> ProcessFacts:
    """What is known of `process`. Raises `CommandError` where it has ended or tells nothing."""
    own, other = _PROC / "self", _PROC / str(process)
    try:
        command = (other / "cmdline").read_text(errors="replace")
        user = _user((other / "status").read_text(errors="replace"))
        if not command:
            # A kernel's thread, or one that has ended and that nobody has waited for.
            raise CommandError(f"process {process} has ended, or never was a program")
        if user != os.geteuid():
            raise CommandError(
                f"process {process} belongs to another user ({user}): run gpuprof snap as that user"
            )
        files = mapped_files((other / "maps").read_text(errors="replace"))
        same_place = _is_same(own / "root", other / "root") and all(
            os.readlink(own / "ns" / name) == os.readlink(other / "ns" / name)
            for name in ("pid", "mnt")
        )
    except (FileNotFoundError, ProcessLookupError):
        raise CommandError(f"there is no process {process}") from None
    except PermissionError:
        raise CommandError(no_permission(process)) from None
    return ProcessFacts(
        process=process,
        user=user,
        command=tuple(command.removesuffix("\0").split("\0")),
        is_python=any(_PYTHON.match(name) for name in files),
        python=python_of(files),
        has_torch=any(name.startswith(_TORCH) for name in files),
        is_in_our_container=same_place,
    )


def refuse(facts: ProcessFacts, own_python: str) -> None:
    """Raise `CommandError` where `facts` say that attaching with `own_python` cannot succeed."""
    who = f"process {facts.process} ({facts.target.title})"
    if not facts.is_in_our_container:
        raise CommandError(
            f"{who} runs in another container or under another root: run gpuprof snap there"
        )
    if not facts.is_python:
        raise CommandError(f"process {facts.process} ({facts.command[0]}) is not Python")
    if facts.python not in (None, own_python):
        raise CommandError(
            f"{who} runs on Python {facts.python} and gpuprof on {own_python}: attaching needs the "
            "same one, 3.14 or later; gpuprof run --wait starts a program on any"
        )
    if not facts.has_torch:
        raise CommandError(f"{who} has not imported torch: nothing would be recorded")


def own_python() -> str:
    """Of this interpreter, as `ProcessFacts.python`."""
    version = sysconfig.get_python_version()
    return f"{version}t" if sysconfig.get_config_var("Py_GIL_DISABLED") else version


def mapped_files(maps: str) -> tuple[str, ...]:
    """The names, without folders, of the files in proc(5)'s `maps`."""
    paths = (line.split(maxsplit=5)[5:] for line in maps.splitlines())
    return tuple(
        dict.fromkeys(
            PurePosixPath(path.removesuffix(_DELETED)).name
            for (path,) in filter(None, paths)
            if path.startswith("/")
        )
    )


def python_of(files: Iterable[str]) -> str | None:
    """Which Python has loaded `files`, as `ProcessFacts.python`."""
    for name in files:
        found = _TAG.search(name)
        if found is not None:
            return f"{found[1] or found[3]}.{found[2] or found[4]}"
    return None


def target_of(command: Sequence[str]) -> RunTarget:
    """What the command line of an interpreter runs."""
    words = iter(command[1:])
    for word in words:
        if word in _WITH_VALUE:
            next(words, None)
        elif word in ("-m", "-c"):
            kind = "module" if word == "-m" else "command"
            return RunTarget(kind, next(words, ""), tuple(words))
        elif not word.startswith("-"):
            return RunTarget("script", word, tuple(words))
    # Named by itself, or fed by its standard input.
    return RunTarget("script", command[0], ())


def no_permission(process: int) -> str:
    """Why the kernel does not let us reach into `process`, as far as it tells."""
    sentence = f"no permission to reach into process {process}"
    try:
        scope = _PTRACE_SCOPE.read_text().strip()
    except OSError:
        scope = "0"
    if scope == "0":
        return f"{sentence}: the kernel or the container does not allow ptrace (CAP_SYS_PTRACE)"
    return (
        f"{sentence}: kernel.yama.ptrace_scope is {scope}; sudo sysctl kernel.yama.ptrace_scope=0 "
        "allows it, or CAP_SYS_PTRACE for gpuprof snap"
    )


def _user(status: str) -> int:
    """The effective user by proc(5)'s `status`. Who owns the files there may be another."""
    line = next(line for line in status.splitlines() if line.startswith("Uid:"))
    return int(line.split()[2])


def _is_same(one: Path, other: Path) -> bool:
    return os.path.samestat(one.stat(), other.stat())
