"""Reads reports of Nsight Compute as gpuprof does, each in a process that is forked, not started.

An interpreter and the import of NVIDIA's package take 0.15 s, reading a small report a few
milliseconds. Run as a file, this is the server: each line of its input names a report, and the most
bytes of memory for it.
"""

import atexit
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class ReportServer:
    """The tests' side. `run` takes the place of `subprocess.run` in collectors/ncu/report.py."""

    def __init__(self, whole: bytes) -> None:
        """`whole` is a report without damage: at its first the package sets itself up."""
        self._folder = tempfile.TemporaryDirectory(prefix="reports-")
        Path(self._folder.name, "whole.ncu-rep").write_bytes(whole)
        self._server = subprocess.Popen(
            [sys.executable, "-S", __file__, self._folder.name, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(self._end)

    def run(self, command: Sequence[str], **_options: Any) -> "subprocess.CompletedProcess[bytes]":
        """What `command`, which reads a report, would have ended with and written."""
        _python, _no_site, program, file, most_bytes, *_path = command
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps([program, file, int(most_bytes)]) + "\n")
        self._server.stdin.flush()
        code = int(self._server.stdout.readline())
        output, said = (Path(self._folder.name, name).read_bytes() for name in ("1", "2"))
        return subprocess.CompletedProcess(command, code, output, said)

    def _end(self) -> None:
        self._server.kill()
        self._server.communicate()
        self._folder.cleanup()


def _serve(folder: str) -> None:
    import msgspec  # noqa: F401
    import ncu_report

    action = ncu_report.load_report(f"{folder}/whole.ncu-rep").range_by_idx(0).action_by_idx(0)
    for name in action.metric_names():
        action.metric_by_name(name).value()
    for line in sys.stdin:
        program, file, most_bytes = json.loads(line)
        child = os.fork()
        if not child:
            _read(program, file, most_bytes, folder)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _read(program: str, file: str, most_bytes: int, folder: str) -> None:
    """What the program does, with its output and errors in files of `folder`; ends the process."""
    code = 1
    try:
        for descriptor in (1, 2):
            written = os.open(f"{folder}/{descriptor}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(written, descriptor)
        sys.path.insert(0, os.path.dirname(program))
        import report_process  # type: ignore[import-not-found]

        report_process.main(file, most_bytes)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    sys.path[:] = sys.argv[2:]
    _serve(sys.argv[1])
