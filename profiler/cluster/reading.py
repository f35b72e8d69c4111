"""One file, or the folder of one rank, to the summaries of its ranks: what a worker does."""

from pathlib import Path

from gpuprof.collectors import storage
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.opening import open_trace
from gpuprof.profiler.cluster.places import on_this_machine, rank_of_folder
from gpuprof.profiler.step_range import with_steps
from gpuprof.roofline.ranks.summarise import summarise


def read_summaries(place: str, step_range: str | None = None) -> tuple[bytes, ...]:
    """The `RankSummary` of each rank in `place`, as bytes.

    Raises `CaptureError` where it cannot be read, `CommandError` where no range is called
    `step_range`, and what the file system of an address does.
    """
    capture = read_capture(place, step_range)
    return tuple(summarise(capture, rank).to_bytes() for rank in capture.manifest.ranks)


def read_capture(place: str, step_range: str | None = None) -> Capture:
    """The capture of the file or of the folder of a rank, with its steps.

    Raises as `read_summaries`.
    """
    with on_this_machine(place) as path:
        return with_steps(_open(path), step_range)


def _open(path: Path) -> Capture:
    rank = rank_of_folder(path)
    return open_trace(path) if rank is None else storage.load_rank(path.parent, rank)
