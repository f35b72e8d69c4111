"""The process that stores early, while the program goes on."""

import subprocess
import sys

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
