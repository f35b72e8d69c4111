"""The end of a program that Nsight Compute counts: nothing of it runs after that."""

import os
import sys
import threading


def end_after(seconds: float) -> None:
    """End this process then; ncu keeps what it had counted."""
    timer = threading.Timer(seconds, end_now)
    timer.daemon = True
    timer.start()


def end_now() -> None:
    """End this process, without what it would do at its end."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
