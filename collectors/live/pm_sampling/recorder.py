"""The recorder of `gpuprof run --pm-sampling`, and the process that samples for it."""

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from gpuprof.collectors.live import cuda
from gpuprof.collectors.live.profile_recorder import Rows
from gpuprof.collectors.tools import configured_tool

INTERVAL_NS: Final = 100_000
# Columns of `samples` and the metrics of which one pass counts all (CUPTI, "PM Sampling"; seen on
# an H200 with driver 580 and cupti-python 13.4: tests/gpu/visit_pm_sampling.py).
METRICS: Final = {
    "tensor_active_percent": (
        "sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed"
    ),
    "dram_active_percent": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm_active_percent": "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
}
_HOW: Final = (
    "; install cupti-python (13.3 or later), where torch pins another CUPTI in an environment of "
    "its own, and name its python in gpuprof.toml: [tools] pm_sampling_python"
)
# Seen on an H200: cupti-python takes the CUPTI of its environment, and with it the libnvperf_host
# that LD_LIBRARY_PATH names.
_MIXED: Final = (
    "; its libcupti and libnvperf_host may be of two versions: let LD_LIBRARY_PATH name neither"
)
# Loading CUPTI takes a second or two, decoding a second for some 10,000 samples.
_PATIENCE_S: Final = 60.0
# Between closing its pipe and its end.
_LAST_MOMENT_S: Final = 1.0
# The first sample of a second recording began at the end of the one before.
_LONGEST: Final = 2
# Between the device's clock and the system's, where both tell Unix time.
_SAME_CLOCK_NS: Final = 50_000_000


class PmSampler:
    """A `ProfileRecorder` of one device: rows of `samples` with windows of `INTERVAL_NS`.

    The process starts with `start` and ends with `stop`, or with this one.
    """

    subject = "counters by PM sampling"

    def __init__(self, worker: Sequence[str] | None = None) -> None:
        """`worker` is the command of the process, without its arguments."""
        self._worker = worker
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._unread = b""
        self._columns: tuple[str, ...] = ()
        self._device = 0
        self._started: tuple[int, int] | None = None

    def start(self) -> None:
        """Sample from now on. Raises `RuntimeError` with what stops it."""
        if not cuda.in_use():
            return
        self._launch()
        before_ns, after_ns = self._asked("start")["started"]
        self._started = (before_ns, after_ns)

    def stop(self) -> Rows:
        """The samples since `start`. Raises `RuntimeError` with what stops it."""
        if self._started is None:
            return {}
        started, self._started = self._started, None
        samples = self._asked("stop")["samples"]
        self._close()
        return {"samples": list(_rows(samples, self._columns, self._device, started))}

    def _close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    def _launch(self) -> None:
        self._device = cuda.current_device()
        python = configured_tool("pm_sampling_python") or sys.executable
        worker = self._worker or (python, str(Path(__file__).with_name("worker.py")))
        arguments = (str(self._device), str(INTERVAL_NS), "\n".join(METRICS.values()))
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [*worker, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        taken = self._answer()["metrics"]
        self._columns = tuple(
            next(column for column, metric in METRICS.items() if metric == name) for name in taken
        )

    def _asked(self, command: str) -> Mapping[str, Any]:
        process = self._process
        if process is None or process.stdin is None:
            raise RuntimeError("its process has ended")
        try:
            process.stdin.write(f"{command}\n".encode())
            process.stdin.flush()
        except OSError:
            raise RuntimeError(self._why_silent()) from None
        return self._answer()

    def _answer(self) -> Mapping[str, Any]:
        answer = self._line()
        if answer is None:
            why = self._why_silent()
            self._close()
            raise RuntimeError(why)
        said: Mapping[str, Any] = msgspec.json.decode(answer)
        if "problem" in said:
            self._close()
            raise RuntimeError(said["problem"] + (_HOW if "No module" in said["problem"] else ""))
        return said

    def _why_silent(self) -> str:
        assert self._process is not None
        assert self._errors is not None
        with suppress(subprocess.TimeoutExpired):
            status = self._process.wait(_LAST_MOMENT_S)
            if status < 0:
                hint = _MIXED if status == -signal.SIGSEGV else ""
                return f"its process was ended by {signal.Signals(-status).name}{hint}"
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").split("\n")
            last = next((line.strip() for line in reversed(said) if line.strip()), "")
            return f"its process ended with exit code {status}{': ' if last else ''}{last}"
        return "its process does not answer"

    def _line(self) -> bytes | None:
        assert self._process is not None
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        end = time.monotonic() + _PATIENCE_S
        while b"\n" not in self._unread:
            ready, _, _ = select.select([pipe], [], [], max(0.0, end - time.monotonic()))
            more = os.read(pipe, 1 << 20) if ready else b""
            if not more:
                return None
            self._unread += more
        line, _, self._unread = self._unread.partition(b"\n")
        return line


def _rows(
    samples: Sequence[Sequence[float]],
    columns: Sequence[str],
    device: int,
    started: tuple[int, int],
) -> Iterator[dict[str, object]]:
    """Rows of the samples that are as long as was asked for, in Unix time.

    The device's clock tells Unix time too, by the driver. Where it does not, the first sample began
    when sampling did, which is known to the length of that call.
    """
    whole = [each for each in samples if 0 < each[1] - each[0] <= _LONGEST * INTERVAL_NS]
    if not whole:
        return
    before_ns, after_ns = started
    first_ns = int(whole[0][0])
    apart_ns = max(before_ns - first_ns, first_ns - after_ns, 0)
    late_ns = 0 if apart_ns <= _SAME_CLOCK_NS else (before_ns + after_ns) // 2 - first_ns
    for start_ns, end_ns, *values in whole:
        yield {
            "time_ns": int(end_ns) + late_ns,
            "device": device,
            "window_start_ns": int(start_ns) + late_ns,
            "window_end_ns": int(end_ns) + late_ns,
            **dict(zip(columns, values, strict=True)),
        }
