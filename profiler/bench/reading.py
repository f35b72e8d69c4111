"""Reading what a bench wrote."""

from pathlib import Path

from gpuprof.collectors.errors import CaptureError, problem_of
from gpuprof.collectors.files.stored_json import decode_stored, stored_content
from gpuprof.roofline.bench.results import BENCH_FILE, BenchReport


def read_bench(path: Path) -> BenchReport:
    """The bench in a capture, or in the JSON file `path`. Raises `CaptureError`."""
    file = path / BENCH_FILE if path.is_dir() else path
    content = stored_content(file)
    try:
        return decode_stored(content, BenchReport)
    # msgspec's errors, and invalid UTF-8.
    except ValueError as error:
        raise CaptureError(
            file,
            problem_of(error),
            expected="the JSON of a bench",
            remedy="make it with `gpuprof bench --json FILE`",
        ) from error
