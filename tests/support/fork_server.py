"""Python programs for tests in processes of their own, forked from one that has torch ready.

A new interpreter spends two seconds of CPU time on `import torch` and two more on
`torch._dynamo`, which the first optimizer imports. The server does that once for a test session.
To each program the modules of torch look as if nobody had imported them: they are not in
`sys.modules`, and an import finds them through `sys.meta_path`, only sooner. What a program gets
is otherwise what a new interpreter gives it: arguments, folder, environment, output, exit. The
process that stores what `gpuprof run` has seen is forked from the program before that begins, and
does what a new interpreter is told to do. What a gate measures is forked from the server too, which
a small interpreter asks for it (`forked_program`).

Not for tests of what is settled before `main` starts: interpreter options, variables that libraries
read as they are loaded, signals to the process, whole stacks. Those start `sys.executable`.
"""

import atexit
import gc
import importlib.abc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple, NoReturn

import forked_program

# What imports of these load: the second only what the first has not.
_TORCH: Final = "torch"
_HIDDEN: Final = (_TORCH, "torch._dynamo")
_STARTS_CHILDREN: Final = "gpuprof.profiler.child_processes"
# Imports nothing of torch, and is what most programs under test need.
_STARTS_STORING: Final = "gpuprof.profiler.run.storing_process"
_STORES: Final = "gpuprof.profiler.run.storing_server"
_SHOWN: Final = (
    *("polars", "scipy.stats", "gpuprof.profiler.cli", "gpuprof.roofline.analyze"),
    *("gpuprof.profiler.run.telling", _STARTS_STORING, _STORES),
    # What only some commands need: together a quarter of a second for each that needs all.
    *("gpuprof.profiler.traces", "gpuprof.profiler.run.run_target", "gpuprof.reports.terminal"),
    *("gpuprof.reports.html.page", "gpuprof.roofline.comparison.compare"),
    *("gpuprof.reports.comparison.terminal", "rich_argparse", _STARTS_CHILDREN),
)
_LONGEST_MESSAGE: Final = 1 << 20


class Started(NamedTuple):
    """What a program is started with."""

    arguments: tuple[str, ...]
    folder: str
    environment: dict[str, str]


class ForkServer:
    """The tests' side of the server."""

    def __init__(self, connection: socket.socket, address: str) -> None:
        self._connection = connection
        # What takes the place of `python` in a command, for what is started by others.
        self.command = _asking(address)

    def run(
        self,
        *arguments: str,
        folder: Path,
        environment: Mapping[str, str],
        timeout_s: float = 120,
    ) -> "subprocess.CompletedProcess[str]":
        """Run `python ARGUMENTS`, which are `-m gpuprof ...` or a script's, and wait for its end.

        Raises `subprocess.TimeoutExpired`, after which the program is killed.
        """
        started = Started(arguments, str(folder), dict(environment))
        outputs = [_Pipe(), _Pipe()]
        socket.send_fds(
            self._connection, [json.dumps(started).encode()], [pipe.writing for pipe in outputs]
        )
        process = self._answer()
        for pipe in outputs:
            os.close(pipe.writing)
        self._connection.settimeout(timeout_s)
        try:
            status = self._answer()
        except TimeoutError:
            os.kill(process, 9)
            self._connection.settimeout(None)
            self._answer()
            raise subprocess.TimeoutExpired(arguments, timeout_s) from None
        finally:
            self._connection.settimeout(None)
        output, errors = (pipe.text() for pipe in outputs)
        return subprocess.CompletedProcess(arguments, status, output, errors)

    def _answer(self) -> int:
        answer = self._connection.recv(_LONGEST_MESSAGE)
        assert answer, "the fork server has ended"
        return int(answer)


def _asking(address: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", forked_program.__file__, address)


class _Pipe:
    """Reads what is written until nobody can write any more, as `subprocess.run` does."""

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()
        self._content = b""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with open(self._reading, "rb") as file:
            self._content = file.read()

    def text(self) -> str:
        self._thread.join()
        return self._content.decode().replace("\r\n", "\n").replace("\r", "\n")


@contextmanager
def fork_server() -> Iterator[ForkServer]:
    """The server, until the context ends."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # Linux forgets such an address with its last process.
    address = f"gpuprof-tests-{os.getpid()}-{os.urandom(8).hex()}"
    with ours:
        with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
            # Here, so that whoever asks before the server is ready waits for it.
            listening.bind(f"\0{address}")
            listening.listen()
            passed = (theirs.fileno(), listening.fileno())
            process = subprocess.Popen(
                [sys.executable, __file__, *map(str, passed), address],
                pass_fds=passed,
                stdin=subprocess.DEVNULL,
                # Pipes, as the programs have: what Python's streams can do is settled at its start.
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        yield ForkServer(ours, address)
    _, errors = process.communicate()
    assert process.returncode == 0, errors


class _HiddenModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules of torch that are loaded, and that seem not to be until one of them is imported."""

    def __init__(self, name: str) -> None:
        known = set(sys.modules)
        import_module(name)
        self._modules = {
            loaded: module
            for loaded, module in sys.modules.items()
            if loaded not in known and loaded.partition(".")[0] == _TORCH
        }
        self._specs = {loaded: module.__spec__ for loaded, module in self._modules.items()}

    def hide(self) -> None:
        """As if they had never been imported."""
        for name in self._modules:
            del sys.modules[name]
        for parent, child, _ in self._names_in_others():
            delattr(parent, child)
        sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        loaded = self._specs.get(name)
        if loaded is None:
            return None
        spec = ModuleSpec(name, self, origin=loaded.origin)
        spec.submodule_search_locations = loaded.submodule_search_locations
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module as it was loaded."""
        return self._modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """Show all, as an import of one imports the others."""
        sys.meta_path.remove(self)
        sys.modules.update(self._modules)
        module.__spec__ = self._specs[module.__name__]
        for parent, child, hidden in self._names_in_others():
            setattr(parent, child, hidden)

    def _names_in_others(self) -> Iterator[tuple[ModuleType, str, ModuleType]]:
        """The modules whose parent is not one of them: parent, name there, module."""
        for name, module in self._modules.items():
            parent, _, child = name.rpartition(".")
            if parent and parent not in self._modules:
                yield sys.modules[parent], child, module


class _ForkedStoring:
    """What `storing_process` uses of `subprocess`: the interpreter that it starts is forked.

    A new one imports for longer than it stores. Programs in a new interpreter start one.
    """

    DEVNULL = subprocess.DEVNULL
    SubprocessError = subprocess.SubprocessError

    @staticmethod
    def run(
        command: Sequence[str], *, pass_fds: Sequence[int], **_: object
    ) -> "subprocess.CompletedProcess[str]":
        """Let a process that is nobody's child run what follows `-c`; returns when it has begun."""
        code, *arguments = command[command.index("-S") + 2 :]
        between = os.fork()
        if between == 0:
            if os.fork() == 0:
                _store(code, arguments, pass_fds)
            os._exit(0)
        os.waitpid(between, 0)
        return subprocess.CompletedProcess(command, 0)


def _store(code: str, arguments: Sequence[str], kept: Sequence[int]) -> NoReturn:
    """Run `code` with the descriptors and signals that a new interpreter would have, and end."""
    status = 1
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1):
            os.dup2(null, standard)
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2 and int(name) not in kept:
                with suppress(OSError):
                    os.close(int(name))
        for number in signal.valid_signals():
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.argv[:] = ["-c", *arguments]
        exec(code, {"__name__": "__main__"})
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


class _ForkedChildren:
    """What `child_processes` uses of `subprocess`: a module of Python that it starts is forked.

    Not from its own process, where threads of polars are by then, but from the server.
    """

    DEVNULL = subprocess.DEVNULL
    PIPE = subprocess.PIPE

    def __init__(self, address: str) -> None:
        self._asking = _asking(address)

    def Popen(self, command: str | Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
        """See `subprocess.Popen`."""
        if tuple(command[:2]) == (sys.executable, "-m"):
            command = [*self._asking, *command[1:]]
        return subprocess.Popen(command, **options)


def _serve(tests: socket.socket, listening: socket.socket) -> Started:
    """Fork a child for each request and tell how it ended; returns only in the children."""
    asking = {tests.fileno(): tests}
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        for number in select.select([listening.fileno(), *asking, *running], [], [])[0]:
            if number == listening.fileno():
                client, _ = listening.accept()
                asking[client.fileno()] = client
                continue
            if number in running:
                process, client = running.pop(number)
                os.close(number)
                status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
                # Who asked may be gone.
                with suppress(OSError):
                    client.send(str(status).encode())
                continue
            message, outputs, _, _ = socket.recv_fds(asking[number], _LONGEST_MESSAGE, 2)
            if not message:
                if asking[number] is tests:
                    os._exit(0)
                client = asking.pop(number)
                client.close()
                for process in [process for process, asked in running.values() if asked is client]:
                    os.kill(process, signal.SIGKILL)
                continue
            child = os.fork()
            if child == 0:
                for inherited in (listening.fileno(), *asking, *running):
                    os.close(inherited)
                for standard, output in enumerate(outputs, start=1):
                    os.dup2(output, standard)
                    os.close(output)
                return Started(*json.loads(message))
            for output in outputs:
                os.close(output)
            running[os.pidfd_open(child)] = (child, asking[number])
            asking[number].send(str(child).encode())


def _become(started: Started, torch: ModuleType) -> None:
    """Run the program as a new interpreter would, and end."""
    os.chdir(started.folder)
    os.environ.clear()
    os.environ.update(started.environment)
    sys.orig_argv[:] = [sys.executable, *started.arguments]
    first, *rest = started.arguments
    sys.path[0] = started.folder if first == "-m" else str(Path(first).absolute().parent)
    named = started.environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:1] = [folder for folder in filter(None, named) if folder not in sys.path]
    # torch read it when it was loaded; ranks that share the cores would have too many threads.
    if threads := started.environment.get("OMP_NUM_THREADS"):
        torch.set_num_threads(int(threads))
    try:
        if first == "-m":
            sys.argv[:] = rest
            runpy._run_module_as_main(rest[0])  # type: ignore[attr-defined]
        else:
            script = Path(first).absolute()
            sys.argv[:] = [first, *rest]
            main = sys.modules["__main__"] = ModuleType("__main__")
            main.__file__ = str(script)
            exec(compile(script.read_text(), script, "exec"), main.__dict__)
    except SystemExit as error:
        # Another code is printed, and then the interpreter's to answer.
        if not isinstance(error.code, int | None):
            raise
        _end(error.code or 0)
    except Exception as error:
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
        sys.excepthook(type(error), error, error.__traceback__)
        _end(1)
    _end(0)


def _end(status: int) -> NoReturn:
    """What a program may see of the interpreter's end; freeing all of torch would take a second."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
    os._exit(status)


if __name__ == "__main__":
    for shown in _SHOWN:
        import_module(shown)
    assert _TORCH not in sys.modules
    sys.modules[_STARTS_STORING].subprocess = _ForkedStoring  # type: ignore[attr-defined]
    children = _ForkedChildren(sys.argv[3])
    sys.modules[_STARTS_CHILDREN].subprocess = children  # type: ignore[attr-defined]
    # With the lowest priority it would get no time on a busy machine, where a test waits for it.
    sys.modules[_STORES].give_way = lambda: None  # type: ignore[attr-defined]
    groups = [_HiddenModules(hidden) for hidden in _HIDDEN]
    loaded_torch = sys.modules[_TORCH]
    # torch imports it where it is; a program may have one of its own.
    sys.modules.pop("pynvml", None)
    for group in reversed(groups):
        group.hide()
    # Else a garbage collection of a program visits and copies all that was loaded here.
    gc.collect()
    gc.freeze()
    tests_side, others_side = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    _become(_serve(tests_side, others_side), loaded_torch)
