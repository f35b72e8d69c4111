"""Asks the fork server for a program and ends as that ends, in an interpreter that imports little.

    python -I -S forked_program.py ADDRESS ARGUMENTS

For what starts `python ARGUMENTS` itself. The program has this process's folder, environment,
output and errors, gets the signals that ask this to end, and is killed where this is.
"""

import json
import os
import signal
import socket
import sys
from typing import NoReturn

_LONGEST_ANSWER = 64


def main(address: str, arguments: list[str]) -> NoReturn:
    """Wait for the program's end, and end with its status or by its signal."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(f"\0{address}")
    started = (arguments, os.getcwd(), dict(os.environ))
    socket.send_fds(connection, [json.dumps(started).encode()], [1, 2])
    program = int(connection.recv(_LONGEST_ANSWER))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: os.kill(program, number))
    status = int(connection.recv(_LONGEST_ANSWER))
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
