"""The CSV that `ncu --csv` prints: page raw (a column a metric) or details (a row a metric).

Before the header stand ncu's own messages (==PROF==, ==WARNING==) and whatever the program printed.
"""

import codecs
import csv
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple, TextIO

import msgspec

from gpuprof.collectors.errors import CaptureError, problem_of
from gpuprof.collectors.files.decompression import first_bytes
from gpuprof.collectors.ncu.number_format import NumberFormat, infer
from gpuprof.collectors.ncu.profile import ATTRIBUTE_PREFIX, Dimensions, Profile, ProfiledLaunch

_LAUNCH_COLUMNS: Final = frozenset(
    (
        "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context",
        "Stream", "Block Size", "Grid Size", "Device", "CC",
    )
)  # fmt: skip
_HEADER: Final = re.compile(r'\ufeff?"?ID"?,.*Kernel Name')
_NVTX_COLUMN: Final = re.compile(r"(thread|Id) Domain:|Id:Domain:")
_MESSAGE: Final = re.compile(r"==(ERROR|WARNING)== *(.*)")
_MOST_MESSAGES: Final = 10
# In characters. A row of thousands of metrics has some 100 000.
_LONGEST_LINE: Final = 4 << 20
# A launch's index and dimensions; larger numbers are damage.
_WHOLE: Final = re.compile(r"[0-9]{1,18}")
_TRIPLE: Final = re.compile(r"\(\s*([0-9]{1,9}),\s*([0-9]{1,9}),\s*([0-9]{1,9})\s*\)")


# A tuple, not a dataclass: one is made for each cell of pages that hold thousands a row.
class _Value(NamedTuple):
    """One cell with a metric's value, as it is printed."""

    place: str
    launch: tuple[str, ...]
    row: dict[str, str]
    metric: str
    unit: str
    text: str


def read_csv(path: Path, file: Path) -> Profile:
    """Read the plain file `file`; `path` is its name for people.

    Raises `CaptureError` where there is no CSV in it, with ncu's own reason where it gave one, and
    where its numbers cannot be understood.
    """
    messages = _Messages()
    # Twice over the file rather than all of its text in memory.
    number_format = infer(
        path, ((cell.place, cell.text) for cell in _cells(path, file, _Messages()))
    )
    profile = Profile()
    numbers: dict[tuple[str, ...], int] = {}
    for cell in _cells(path, file, messages):
        launch = numbers.get(cell.launch)
        if launch is None:
            launch = numbers[cell.launch] = len(profile.launches)
            profile.launches.append(_launch(cell.row))
        _store(profile, launch, cell, number_format)
    profile.warnings += messages.warnings()
    if not profile.launches:
        raise messages.reason(path)
    return profile


class _Messages:
    """What ncu and the file said besides values."""

    def __init__(self) -> None:
        self.header_seen = False
        self.damaged_rows = 0
        # What was said, and whether as an error.
        self._messages: dict[str, bool] = {}

    def add(self, line: str) -> bool:
        """Remember a line of ncu's own; False where it is none."""
        match = _MESSAGE.match(line)
        if match:
            self._messages.setdefault(match[2].strip(), match[1] == "ERROR")
        return match is not None

    def warnings(self) -> list[str]:
        said = list(self._messages)
        warnings = [f"Nsight Compute: {message}" for message in said[:_MOST_MESSAGES]]
        if len(said) > _MOST_MESSAGES:
            warnings.append(f"Nsight Compute: {len(said) - _MOST_MESSAGES} more messages")
        if self.damaged_rows:
            warnings.append(
                f"{self.damaged_rows} rows of the CSV are damaged or cut off and left out"
            )
        return warnings

    def reason(self, path: Path) -> CaptureError:
        """Why the file holds no values."""
        said = " ".join(self._messages)
        if "ERR_NVGPUCTRPERM" in said:
            return CaptureError(
                path,
                "ncu was not permitted to read the GPU's performance counters (ERR_NVGPUCTRPERM)",
                remedy="load the nvidia kernel module with NVreg_RestrictProfilingToAdminUsers=0, "
                "or run ncu as root or with CAP_SYS_ADMIN",
            )
        # ncu goes on: "Ensure that no other tool (like DCGM) is concurrently collecting".
        if "resource was unavailable" in said:
            return CaptureError(
                path,
                "another tool holds the GPU's performance counters, such as DCGM's profiling or "
                "another ncu",
                remedy="pause DCGM's with `dcgmi profile --pause` (and --resume later), or end the "
                "other tool",
            )
        if self.header_seen or "No kernels were profiled" in said:
            return CaptureError(
                path,
                "no kernels profiled",
                remedy="check ncu's --kernel-name, --launch-skip and --nvtx filters, and that the "
                "program reaches its GPU work",
            )
        errors = " ".join(text for text, is_error in self._messages.items() if is_error)
        if said:
            return CaptureError(path, f"no CSV, ncu said: {(errors or said)[:300]}")
        return CaptureError(
            path,
            "no CSV of Nsight Compute",
            expected='a header line that begins with "ID" and names "Kernel Name"',
            remedy="make one with `ncu --csv --page raw --import REPORT.ncu-rep`",
        )


def _cells(path: Path, file: Path, messages: _Messages) -> Iterator[_Value]:
    with _opened(file) as lines:
        header: list[str] = []
        units: dict[str, str] = {}
        section = 0
        try:
            for line_number, row in _rows(lines, messages):
                if row[0].lstrip("\ufeff") == "ID":
                    header, section, units = ["ID", *row[1:]], section + 1, {}
                    messages.header_seen = True
                    continue
                long_format = "Metric Value" in header
                named = dict(zip(header, row, strict=False))
                if not long_format and not units and not row[0]:
                    units = named
                    continue
                if not _is_complete(header, row, named, long_format):
                    messages.damaged_rows += 1
                    continue
                launch = (str(section), named.get("Process ID", ""), row[0])
                place = f"line {line_number}"
                if long_format:
                    yield _detail(place, launch, named)
                else:
                    yield from _raw(place, launch, named, units)
        except csv.Error as error:
            raise CaptureError(path, f"damaged CSV: {problem_of(error)}") from error


def _rows(lines: TextIO, messages: _Messages) -> Iterator[tuple[int, list[str]]]:
    """Numbered rows from the first header on, without what was printed around them."""
    skipped = 0
    header = ""
    # What a program printed may be of any length: it comes in parts.
    for line in _lines(lines):
        skipped += 1
        if _HEADER.match(line):
            header = line
            break
        messages.add(line)
    if not header:
        return
    reader = csv.reader(_of_table(header, lines))
    for row in reader:
        if len(row) > 1:
            yield skipped - 1 + reader.line_num, row
        elif row:
            messages.add(row[0])


def _lines(file: TextIO) -> Iterator[str]:
    return iter(lambda: file.readline(_LONGEST_LINE), "")


def _of_table(header: str, rest: TextIO) -> Iterator[str]:
    for line in chain((header,), _lines(rest)):
        if len(line) >= _LONGEST_LINE:
            raise csv.Error(f"a line is longer than {_LONGEST_LINE >> 20} MB")
        yield line


def _is_complete(
    header: list[str], row: list[str], named: dict[str, str], long_format: bool
) -> bool:
    """Whether this is a launch's row: numbered, and long enough to hold what is read from it.

    Rows of the details page end where their last filled column is.
    """
    enough = "Metric Value" in named if long_format else len(row) == len(header)
    return enough and len(row) <= len(header) and _WHOLE.fullmatch(row[0]) is not None


def _detail(place: str, launch: tuple[str, ...], row: dict[str, str]) -> _Value:
    label, section = row.get("Metric Name", ""), row.get("Section Name", "")
    metric = label if not label or "__" in label else _metric_of(section, label)
    return _Value(place, launch, row, metric, row.get("Metric Unit", ""), row["Metric Value"])


def _raw(
    place: str, launch: tuple[str, ...], row: dict[str, str], units: dict[str, str]
) -> Iterator[_Value]:
    # A launch without metrics is a launch all the same.
    yield _Value(place, launch, row, "", "", "")
    for metric, text in row.items():
        if metric not in _LAUNCH_COLUMNS and not _NVTX_COLUMN.match(metric):
            yield _Value(place, launch, row, metric, units.get(metric, ""), text)


def _store(profile: Profile, launch: int, cell: _Value, number_format: NumberFormat) -> None:
    value = number_format.parse(cell.text) if cell.metric else None
    if cell.metric.startswith(ATTRIBUTE_PREFIX):
        text = cell.text if value is None else f"{value.normalize():f}"
        profile.add_attribute(launch, cell.metric, text)
    elif value is not None:
        profile.add(launch, cell.metric, cell.unit, value)


def _launch(row: dict[str, str]) -> ProfiledLaunch:
    return ProfiledLaunch(
        name=row.get("Kernel Name", "") or "(unnamed kernel)",
        process=_whole(row.get("Process ID")),
        device=_whole(row.get("Device"), 2**31),
        context=_whole(row.get("Context")),
        stream=_whole(row.get("Stream")),
        grid=_dimensions(row.get("Grid Size")),
        block=_dimensions(row.get("Block Size")),
    )


def _whole(text: str | None, limit: int = 2**63) -> int | None:
    return int(text) if text and _WHOLE.fullmatch(text) and int(text) < limit else None


def _dimensions(text: str | None) -> Dimensions | None:
    match = _TRIPLE.fullmatch(text or "")
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


@contextmanager
def _opened(file: Path) -> Iterator[TextIO]:
    start = first_bytes(file, 2)
    # PowerShell redirects as UTF-16.
    utf16 = start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    with file.open(encoding="utf-16" if utf16 else "utf-8", errors="replace", newline="") as lines:
        yield lines


class _Label(msgspec.Struct, frozen=True):
    section: str
    metrics: dict[str, str]


class _Labels(msgspec.Struct, frozen=True):
    labels: tuple[_Label, ...]


def _metric_of(section: str, label: str) -> str:
    """The metric that a label of the details page shows, or "section / label" where unknown."""
    return details_labels().get((section, label)) or f"{section} / {label}"


@lru_cache(maxsize=1)
def details_labels() -> dict[tuple[str, str], str]:
    """(section, label) of the details page -> the metric it shows."""
    text = files("gpuprof.collectors.ncu").joinpath("labels.toml").read_bytes()
    return {
        (part.section, label): metric
        for part in msgspec.toml.decode(text, type=_Labels).labels
        for label, metric in part.metrics.items()
    }
