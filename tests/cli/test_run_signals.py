"""Signals under `gpuprof run` act as they do under python, and the capture is kept."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from fork_server import ForkServer
from training_script import FEW, TRAINING

from gpuprof.collectors import storage
from gpuprof.collectors.manifest import ProcessInfo

Gpuprof = Callable[..., "subprocess.CompletedProcess[str]"]
Both = Callable[..., tuple["subprocess.CompletedProcess[str]", ProcessInfo]]

SCRIPT = f"""{TRAINING}
def ourselves(number):
    os.kill(os.getpid(), number)
"""


@pytest.fixture
def both(tmp_path: Path, gpuprof: Gpuprof, server: ForkServer) -> Both:
    """Run a script with python and with gpuprof: it prints and ends the same, and is captured."""

    def run(*source: str) -> tuple["subprocess.CompletedProcess[str]", ProcessInfo]:
        (tmp_path / "script.py").write_text(SCRIPT + "".join(map(textwrap.dedent, source)))
        plain = server.run("script.py", folder=tmp_path, environment=os.environ)
        ours = gpuprof("run", "-q", *FEW, "-o", "out.gpuprof", "script.py")
        assert (ours.returncode, ours.stdout) == (plain.returncode, plain.stdout), ours.stderr
        return ours, storage.load(tmp_path / "out.gpuprof").processes[0]

    return run


INSTALLED = (
    # Only where nobody has.
    """
    if signal.getsignal(signal.SIGTERM) in (None, signal.SIG_DFL):
        signal.signal(signal.SIGTERM, save)
    """,
    # Calls the one before, as polite libraries do.
    """
    before = signal.signal(signal.SIGTERM, save)
    print(before)
    if callable(before):
        before(signal.SIGTERM, None)
    """,
    # Gives the default back, and takes it away again.
    """
    from signal import SIG_DFL, SIGTERM, signal as install
    first = install(SIGTERM, save)
    print(install(SIGTERM, first).__name__, install(SIGTERM, save), signal.getsignal(SIGTERM))
    """.replace("signal.getsignal(SIGTERM)", "signal.getsignal(SIGTERM).__name__"),
)


# Before the profiled steps and after them; each way to install at least once.
@pytest.mark.parametrize(
    ("install", "steps"), [(INSTALLED[0], 2), (INSTALLED[1], 9), (INSTALLED[2], 2)]
)
def test_a_handler_of_the_program_finds_none_before_it(
    both: Both, tmp_path: Path, install: str, steps: int
) -> None:
    _, process = both(
        """
        def save(number, frame):
            print('saved')
            sys.exit(0)
        """,
        install,
        f"""
        train({steps})
        ourselves(signal.SIGTERM)
        train(1000)
        """,
    )
    assert (process.ending, process.exit_code) == ("finished", 0)


def test_what_signal_says_is_what_python_says(both: Both) -> None:
    _, process = both(
        """
        names = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGRTMAX)
        print([signal.getsignal(name) == signal.SIG_DFL for name in names])
        print(signal.signal(signal.SIGHUP, signal.SIG_IGN), signal.getsignal(signal.SIGHUP))
        print(signal.signal(signal.SIGHUP, signal.SIG_DFL), signal.getsignal(signal.SIGHUP))
        for wrong in ((signal.SIGTERM, 'handler'), (999, signal.SIG_DFL)):
            try:
                signal.signal(*wrong)
            except Exception as error:
                print(type(error), error)
        def on_a_thread():
            try:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            except ValueError as error:
                print(error)
        thread = threading.Thread(target=on_a_thread)
        thread.start()
        thread.join()
        ourselves(signal.SIGTERM)
        """
    )
    assert process.ending == "sigterm"


@pytest.mark.parametrize(
    ("number", "work"),
    [
        # Swallows all that is raised.
        (
            signal.SIGTERM,
            """
            while True:
                try:
                    train(1)
                except BaseException:
                    pass
            """,
        ),
        (signal.SIGHUP, "time.sleep(600)"),
        # In C, which comes back when a signal arrives, and which does not.
        (signal.SIGHUP, "import ctypes\nctypes.CDLL(None).sleep(600)\nprint('woke')"),
        (
            signal.SIGTERM,
            """
            import ctypes
            libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(256)
            libc.pthread_mutex_lock(mutex)
            libc.pthread_mutex_lock(mutex)
            """,
        ),
    ],
)
def test_a_signal_ends_it_wherever_it_is(both: Both, number: signal.Signals, work: str) -> None:
    _, process = both(
        f"""
        train(2)
        threading.Timer(0.2, ourselves, [{number:d}]).start()
        """,
        work,
    )
    assert process.ending == number.name.lower()


def test_a_signal_waits_for_no_early_capture_that_gets_no_time(both: Both) -> None:
    """It is stored at the lowest priority, and others, as workers of a loader, take all cores."""
    _, process = both(
        """
        import subprocess
        busy = f"import os\\nwhile os.getppid() == {os.getpid()}: pass"
        for _ in range(len(os.sched_getaffinity(0))):
            subprocess.Popen([sys.executable, "-c", busy])
        train(9)
        ourselves(signal.SIGTERM)
        """
    )
    assert process.ending == "sigterm"
    assert process.warnings == ()


def test_a_signal_sent_twice_at_once_keeps_the_capture(both: Both) -> None:
    _, process = both(
        """
        train(2)
        threading.Timer(0.2, lambda: (ourselves(15), time.sleep(0.05), ourselves(15))).start()
        time.sleep(600)
        """
    )
    assert process.ending == "sigterm"


def test_an_ignored_signal_stays_ignored(tmp_path: Path, gpuprof_environment: object) -> None:
    (tmp_path / "script.py").write_text(SCRIPT + "ourselves(signal.SIGHUP)\nprint('here')")
    done = subprocess.run(
        ["nohup", sys.executable, "-m", "gpuprof", "run", "-q", "script.py"],
        cwd=tmp_path,
        env=gpuprof_environment,  # type: ignore[arg-type]
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "here\n")


@pytest.mark.parametrize("make", ["os.fork()", "multiprocessing"])
def test_children_are_ended_and_their_parent_is_not(both: Both, make: str) -> None:
    child = {
        "os.fork()": """
        child = os.fork()
        if child == 0:
            time.sleep(600)
        os.kill(child, signal.SIGTERM)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
        "multiprocessing": """
        import multiprocessing
        context = multiprocessing.get_context('fork')
        child = context.Process(target=time.sleep, args=(600,))
        child.start()
        child.terminate()
        child.join()
        print(child.exitcode)
        """,
    }[make]
    # Longer than a signal to the parent would take.
    ours, process = both("train(9)", child, "time.sleep(1.5)\ntrain(3)\n")
    assert (ours.stdout, process.ending) == ("-15\n", "finished")


def test_ctrl_c_ends_a_loop_of_the_shell(
    tmp_path: Path, gpuprof_environment: dict[str, str]
) -> None:
    (tmp_path / "script.py").write_text(
        SCRIPT + "train(2)\nprint('started', flush=True)\nos.killpg(0, signal.SIGINT)\ntrain(99)"
    )
    command = f"{sys.executable} -m gpuprof run -q -f -o out.gpuprof script.py"
    done = subprocess.run(
        ["bash", "-c", f"for run in 1 2 3; do {command}; done"],
        cwd=tmp_path,
        env=gpuprof_environment,
        capture_output=True,
        text=True,
        timeout=120,
        start_new_session=True,
        check=False,
    )
    assert done.stdout == "started\n"
    assert storage.load(tmp_path / "out.gpuprof").processes[0].ending == "interrupted"


def test_a_handler_for_the_last_real_time_signal_is_the_programs(both: Both) -> None:
    # The first look ends on another thread than it began on.
    _, process = both(
        """
        signal.signal(signal.SIGRTMAX, lambda number, frame: print('handled'))
        thread = threading.Thread(target=train, args=(9,))
        thread.start()
        thread.join()
        ourselves(signal.SIGRTMAX)
        time.sleep(0.01)
        """
    )
    assert process.ending == "finished"


HOOK = """
from gpuprof.profiler.run import session
advance = session.Session._advance
def slow_hook(self, mark):
    # As if the signal came while the hook is at work.
    ourselves(signal.SIGALRM)
    for _ in range(100):
        time.sleep(0)
    advance(self, mark)
session.Session._advance = slow_hook
"""


@pytest.mark.parametrize(
    "handler",
    [
        "def handler(number, frame): raise TimeoutError('the watchdog')",
        "def handler(*_): raise RuntimeError('a worker is gone')",
        "class Watchdog:\n    def __call__(self, number, frame): raise TimeoutError\n"
        "handler = Watchdog()",
    ],
)
def test_what_a_handler_raises_while_our_hook_runs_reaches_the_program(
    tmp_path: Path, gpuprof: Gpuprof, handler: str
) -> None:
    (tmp_path / "script.py").write_text(
        SCRIPT
        + handler
        + HOOK
        + "signal.signal(signal.SIGALRM, handler)\n"
        + "try:\n    train(9)\nexcept Exception as error:\n    print('caught', type(error))\n"
    )
    ours = gpuprof("run", "-q", "-o", "out.gpuprof", "script.py")
    assert ours.returncode == 0
    assert ours.stdout.startswith("caught <class")
    (warning,) = storage.load(tmp_path / "out.gpuprof").processes[0].warnings
    assert warning.startswith("profiling ended early: ")


def test_an_alarm_that_goes_off_while_we_store_changes_nothing(both: Both) -> None:
    # A timer might go off after it, while torch is cleaned up, and end any python.
    _, process = both(
        """
        def late(number, frame):
            raise TimeoutError('nobody hears it')
        signal.signal(signal.SIGALRM, late)

        from gpuprof.profiler.run.storing import Storing
        store = Storing._store
        def store_late(self, *ending):
            ourselves(signal.SIGALRM)
            for _ in range(100):
                time.sleep(0)
            store(self, *ending)
        Storing._store = store_late
        train(9)
        """
    )
    assert process.ending == "finished"


def test_what_a_call_on_the_main_thread_raises_is_raised_in_the_program(
    gpuprof_environment: dict[str, str],
) -> None:
    source = """
import threading, time
from gpuprof.profiler.run.main_thread import call_on_main_thread
class Lost(OSError): pass
def fail():
    error = Lost(5, 'a worker')
    error.rank = 3
    raise error
threading.Timer(0.1, call_on_main_thread, [fail]).start()
try:
    while True: time.sleep(0.001)
except Lost as error:
    print(error, error.errno, error.rank)
"""
    done = subprocess.run(
        [sys.executable, "-c", source],
        env=gpuprof_environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("[Errno 5] a worker 5 3\n", "")
