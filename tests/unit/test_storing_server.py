"""The process that stores early, while the program goes on."""

import os
import socket
import subprocess
import sys

import pytest

from gpuprof.profiler.run.storing_server import _Program

# The signal comes while a finaliser runs, where Python prints what is raised and goes on.
SKIPPED_IN_A_FINALISER = """
import os, signal
from gpuprof.profiler.run import storing_server
signal.pthread_sigmask(signal.SIG_BLOCK, [storing_server._SKIP])
class Lock:
    def __del__(self):
        os.kill(os.getpid(), storing_server._SKIP)
        for _ in range(1000):
            pass
with storing_server._ending_once_skipped(lambda: os.write(1, b"answered")):
    lock = Lock()
    del lock
    os.write(1, b" and went on")
"""


def test_one_that_is_skipped_within_a_finaliser_ends_with_its_answer() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SKIPPED_IN_A_FINALISER],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "answered", "")


# Makes a pair of sockets, as the program does for its storing process, and ends.
SHORT_LIVED = """
import socket, sys
ours, theirs = socket.socketpair()
whole = socket.socket(fileno=int(sys.argv[1]))
socket.send_fds(whole, [b"x"], [theirs.fileno()])
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux tells of other processes")
def test_a_program_that_is_gone_before_anybody_looks_is_dead() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        subprocess.run(
            [sys.executable, "-c", SHORT_LIVED, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            check=True,
            timeout=60,
        )
        _, (received,), _, _ = socket.recv_fds(ours, 1, 1)
    with socket.socket(fileno=received) as connection:
        assert _Program(connection).is_dead()
    # This process has made both ends, and is not dead.
    one, other = socket.socketpair()
    with one, other:
        assert not _Program(one)._is_gone
