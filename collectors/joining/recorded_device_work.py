"""The device's work of a program from Nsight Systems, its operators from torch's profiler.

Only one tool of a process holds CUPTI. Where Nsight Systems does, a capture of `gpuprof run` has
steps and operators and no device work; the recording of the same process has the rest. Together
they are one capture: launches find their operators by thread and time, so the clocks have to agree.
The recording's is set by marks of gpuprof in it (`gpuprof.collectors.nsys.metadata.clock`).
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec
import polars as pl

from gpuprof.collectors import schema
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.held_cupti import is_held_sentence
from gpuprof.collectors.joining.same_process import NSYS
from gpuprof.collectors.manifest import ProcessInfo
from gpuprof.collectors.nvtx_names import STEP

_KEY: Final = ("process", "correlation")
# nsys says so of each recording that a program began and ended. What was lost is counted.
_NOT_ALL: Final = "Nsight Systems: Not all "


def with_recorded_device_work(captures: Sequence[Capture]) -> list[Capture]:
    """`captures`, where those without device work have that of a recording of their process.

    Such a recording is no capture of its own any more.
    """
    used: set[int] = set()
    traces = {}
    for place, capture in enumerate(captures):
        for other, recording in enumerate(captures):
            if other not in used and _is_recording(recording) and _is_of(recording, capture):
                used.add(other)
                traces[place] = _with_work(capture, recording)
                break
    return [
        traces.get(place, capture) for place, capture in enumerate(captures) if place not in used
    ]


def _is_recording(capture: Capture) -> bool:
    return capture.manifest.source == NSYS and len(capture.processes) == 1


def _is_of(recording: Capture, capture: Capture) -> bool:
    """Whether `capture` is of the recorded process, and has operators and no device work."""
    if len(capture.processes) != 1 or not capture.kernels.is_empty() or capture.ops.is_empty():
        return False
    process = recording.processes[0].process
    return process is not None and process == capture.processes[0].process


def _with_work(capture: Capture, recording: Capture) -> Capture:
    rank = capture.processes[0].rank
    launches, kernels = _of_profiled_steps(capture, recording)
    tables = {
        **capture.tables(),
        "kernels": kernels,
        "launches": launches,
        "ranges": pl.concat([capture.ranges, _further_ranges(capture, recording)]),
    }
    tables = {
        name: frame.with_columns(pl.lit(rank, pl.Int32).alias("rank"))
        for name, frame in tables.items()
    }
    process = _with_device(capture.processes[0], kernels)
    own = tuple(said for said in process.warnings if not is_held_sentence(said))
    process = msgspec.structs.replace(
        process,
        attributed=False,
        warnings=(
            *own,
            *_clock_warning(recording),
            *_timed_warning(capture, recording),
            *(said for said in recording.processes[0].warnings if not said.startswith(_NOT_ALL)),
        ),
    )
    return Capture(capture.manifest, (process,), **tables)


def _of_profiled_steps(capture: Capture, recording: Capture) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The recording's launches in the capture's profiled steps, and what they launched.

    The recording may be of the whole program, and operators are known of these steps alone.
    """
    launches, kernels = recording.launches, recording.kernels
    steps = capture.steps.filter(pl.col("phase") == "profiled")
    if steps.is_empty():
        return launches, kernels
    start_ns, end_ns = (
        steps.select(pl.col("start_ns").min(), pl.col("end_ns").max()).to_numpy()[0].tolist()
    )
    during = partial(pl.Expr.is_between, lower_bound=start_ns, upper_bound=end_ns, closed="left")
    launched = launches.sort("start_ns").unique(_KEY, keep="first", maintain_order=True)
    kernels = (
        kernels.join(
            launched.select(*_KEY, launch_ns="start_ns"), on=_KEY, how="left", maintain_order="left"
        )
        .filter(during(pl.coalesce("launch_ns", "start_ns")))
        .drop("launch_ns")
    )
    return launches.filter(during(pl.col("start_ns"))), kernels


def _further_ranges(capture: Capture, recording: Capture) -> pl.DataFrame:
    """Ranges of domains that gpuprof does not see, as those of libraries in C++."""
    known = [*capture.ranges["domain"].unique(), "nvtx"]
    ranges = recording.ranges.filter(~pl.col("domain").is_in(known))
    return schema.conform("ranges", ranges)


def _with_device(process: ProcessInfo, kernels: pl.DataFrame) -> ProcessInfo:
    """`process` with `device` set to the one that did most of the work."""
    for index in kernels["device"].drop_nulls().mode().sort():
        for position, device in enumerate(process.fingerprint.devices):
            if device.kind == "cuda" and device.index == index:
                return msgspec.structs.replace(process, device=position)
    return process


def _clock_warning(recording: Capture) -> tuple[str, ...]:
    if (recording.ranges["name"] == STEP).any():
        return ()
    return (
        "Nsight Systems' recording holds no marks of gpuprof: its clock may differ from that of "
        "the operators, and kernels may be given to operators beside theirs",
    )


def _timed_warning(capture: Capture, recording: Capture) -> tuple[str, ...]:
    """That the tool recorded during the timed steps, which are compared with nothing else."""
    timed = capture.steps.filter(pl.col("phase") == "timed")
    if timed.is_empty():
        return ()
    start_ns, end_ns = timed.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
    if not recording.launches["start_ns"].is_between(start_ns, end_ns).any():
        return ()
    return (
        "Nsight Systems recorded the timed steps too, which makes them longer, above all where the "
        "host launches little work: with `gpuprof run --nsys` it records the profiled ones alone",
    )
