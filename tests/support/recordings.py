"""What the recordings in tests/data mean: tests of several modules look at all of them.

Each is read and analysed once in a process; what comes of it is frozen.
"""

from functools import cache
from pathlib import Path

from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.opening import open_traces
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze

# Empty or cut on purpose: they are refused.
DAMAGED = ("empty.json", "truncated.json.gz")


@cache
def analyses(path: Path) -> tuple[Analysis, ...]:
    """Of each rank of one recording, the lowest first; none where the file is a damaged one."""
    try:
        capture = open_traces([path])
    except CaptureError:
        assert path.name in DAMAGED
        return ()
    return tuple(analyze(capture, rank=rank) for rank in capture.manifest.ranks)
