"""From a path that a user gives to the SQLite file to read."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuprof.collectors.errors import CaptureError, problem_of
from gpuprof.collectors.files.decompression import first_bytes, plain_file
from gpuprof.collectors.files.temporary import temporary_folder
from gpuprof.collectors.nsys.database import MAGIC
from gpuprof.collectors.tools import find_tool

# First bytes of a .nsys-rep, as nsys 2025.3 writes it.
REPORT_MAGIC = b"NVIDIA Tegra Profiler Report"
_REPORT_SUFFIXES = (".nsys-rep", ".qdrep")
_EXPORT_COMMAND = "nsys export --type sqlite REPORT.nsys-rep"


@contextmanager
def sqlite_file(path: Path) -> Iterator[Path]:
    """The export that `path` is, holds compressed, or can be turned into by `nsys`.

    Raises `CaptureError` where it is none of these.
    """
    with plain_file(path) as plain:
        start = first_bytes(plain, len(REPORT_MAGIC))
        if start.startswith(MAGIC):
            yield plain
        elif start == REPORT_MAGIC or path.name.removesuffix(".gz").endswith(_REPORT_SUFFIXES):
            with temporary_folder("nsys") as folder:
                yield _export(path, plain, folder)
        else:
            raise CaptureError(
                path,
                "not an SQLite file",
                expected="an export of Nsight Systems",
                remedy=f"make one with `{_EXPORT_COMMAND}`",
            )


def _export(path: Path, report: Path, folder: Path) -> Path:
    target = folder / "export.sqlite"
    if report.suffix not in _REPORT_SUFFIXES:
        # nsys goes by the name.
        named = folder / "report.nsys-rep"
        named.symlink_to(report.absolute())
        report = named
    nsys = find_tool("nsys")
    if nsys is None:
        raise CaptureError(
            path,
            "a report of Nsight Systems, which only `nsys` can read, and it is not found here",
            remedy=f"where nsys is installed run `{_EXPORT_COMMAND}` and pass the .sqlite file",
        )
    command = [nsys, "export", "--type", "sqlite", "--output", str(target), str(report)]
    try:
        finished = subprocess.run(command, capture_output=True, text=True, errors="replace")
    except OSError as error:
        raise CaptureError(path, f"{nsys} could not be started: {problem_of(error)}") from error
    if finished.returncode != 0 or not target.is_file():
        said = (finished.stderr.strip() or finished.stdout.strip()).splitlines()
        reason = said[-1] if said else f"exit code {finished.returncode}"
        raise CaptureError(path, f"nsys could not export it: {reason}")
    return target
