"""Ends what a process has started when that is killed and can end nothing itself.

    python orphan_guard.py MARK < PIPE

Waits until the other end of the pipe, which only that process has, is closed: by a byte that all
went well, or by its death. Then each process with MARK in its environment is killed, so that those
that began a session of their own are too. Needs /proc; elsewhere nothing is killed. A program of
its own that imports nothing, so that it starts within milliseconds.
"""

import os
import sys

_SIGKILL = 9


def main(mark: bytes) -> None:
    """Wait, and kill where there was no byte."""
    if os.read(0, 1):
        return
    while _kill_all(mark):
        pass


def _kill_all(mark: bytes) -> bool:
    """Kill each process with `mark`; whether there was one, which may have started others."""
    found = False
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if not name.isdecimal():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                marked = mark in file.read().split(b"\0")
            if marked:
                os.kill(int(name), _SIGKILL)
                found = True
        except OSError:
            # Ended meanwhile, or somebody else's.
            continue
    return found


if __name__ == "__main__":
    main(os.fsencode(sys.argv[1]))
