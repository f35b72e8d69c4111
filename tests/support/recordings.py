"""What the recordings in tests/data mean: tests of several modules look at all of them.

Each is read and analysed once in a process; what comes of it is frozen.
"""

from functools import cache
from pathlib import Path

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.opening import open_traces
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze

# Empty, cut or without counters on purpose.
REFUSED = ("empty.json", "truncated.json.gz", "h100_ops_estimates.csv")


@cache
def capture_of(path: Path) -> Capture | None:
    """What one recording holds; None where the file is refused."""
    try:
        return open_traces([path])
    except CaptureError:
        assert path.name in REFUSED
        return None


@cache
def analyses(path: Path) -> tuple[Analysis, ...]:
    """Of each rank of one recording, the lowest first; none where the file is refused."""
    capture = capture_of(path)
    if capture is None:
        return ()
    return tuple(analyze(capture, rank=rank) for rank in capture.manifest.ranks)
