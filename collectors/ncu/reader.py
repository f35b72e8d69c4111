"""Nsight Compute's output as a Capture, whichever form it has."""

import codecs
import re
from pathlib import Path
from typing import Final

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.files.decompression import first_bytes, plain_file
from gpuprof.collectors.ncu.csv_page import read_csv
from gpuprof.collectors.ncu.report import COMPRESSED_MAGIC, MAGIC, read_compressed, read_report

# PowerShell redirects as UTF-16.
_UTF16_MARKS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# What `ncu --csv` prints around its table and as its first line, after the program's own output.
_TEXT: Final = re.compile(r'^(?:==(?:PROF|WARNING|ERROR)== |"?ID"?,.*Kernel Name)', re.MULTILINE)


def recognises(start: bytes) -> bool:
    """Whether a file that begins with `start` is a report or a log with a CSV page."""
    encoding = "utf-16" if start.startswith(_UTF16_MARKS) else "utf-8"
    return start.startswith((MAGIC, COMPRESSED_MAGIC)) or bool(
        _TEXT.search(start.decode(encoding, "replace"))
    )


def read(path: Path) -> Capture:
    """Read a CSV page or a `.ncu-rep`, plain or gzip, or a `.ncu-repz`.

    Counters are in base units (ns, byte, hz, byte/s). Kernels stand in launch order with the
    durations that ncu measured, laid end to end from 0: ncu's times are on no clock.

    Raises `CaptureError` where the file is neither or holds no kernels, and
    `MissingDependencyError` where a report needs the extra `ncu`.
    """
    with plain_file(path) as file:
        if first_bytes(file, len(MAGIC)) == MAGIC:
            return read_report(path, file).capture(path)
        if first_bytes(file, len(COMPRESSED_MAGIC)) == COMPRESSED_MAGIC:
            return read_compressed(path, file).capture(path)
        if path.name.removesuffix(".gz").endswith((".ncu-rep", ".ncu-repz")):
            raise CaptureError(
                path,
                "not a report of Nsight Compute, or an empty one",
                expected=f"a file that begins with {MAGIC[:3].decode()}",
                remedy="profile again with `ncu --export`",
            )
        return read_csv(path, file).capture(path)
