"""Reads a log of NCCL into a capture: one process for each rank, or all of them in one file."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from gpuprof._version import __version__
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.communicators import ProcessGroup
from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.files.source import ByteSource
from gpuprof.collectors.host_identity import host_identity
from gpuprof.collectors.manifest import Fingerprint, Manifest, ProcessInfo
from gpuprof.collectors.nccl_log import patterns
from gpuprof.collectors.nccl_log.process import LoggedProcess, Room
from gpuprof.collectors.table_rows import TableRows

SOURCE: Final = "NCCL log"
# It begins at a colon and not at the host before it: of a megabyte without one, as a row of a table
# is, each byte began another search to its end.
_A_LINE: Final = re.compile(
    rb"(?<=[^\s:\[\]]):\d{1,10}:\d{1,10} \[-?\d{1,4}\] [^\n]{0,300}?NCCL (?:INFO|WARN)"
)
# NCCL's own buffers for a line hold a few kilobytes.
_LONGEST_LINE: Final = 1 << 13
_EXPECTED: Final = "lines of NCCL_DEBUG=INFO with the initialisation of a communicator"
_LONGEST_HOST: Final = 200
# Of all processes together, and of collectives that timed out.
_MOST_CALLS: Final = 300_000
_LINES_BETWEEN_COUNTS: Final = 100_000
_MOST_TIMEOUTS: Final = 100_000


def recognises(start: bytes) -> bool:
    """Whether a file that begins with `start` is a log with lines of NCCL in it."""
    if start.lstrip().startswith(b"{") or b'"ph"' in start:
        return False
    return _A_LINE.search(start) is not None


def read(path: Path) -> Capture:
    """Read one log, plain or gzip. Other programs' lines between NCCL's are no matter.

    A process is a host and a process id; its rank is that in its largest communicator. Raises
    `CaptureError` where no communicator is in it.
    """
    source = ByteSource(path)
    room = Room()
    processes: dict[tuple[str, str], LoggedProcess] = {}
    timeouts: list[dict[str, Any]] = []
    for number, line in enumerate(_lines(source)):
        if number % _LINES_BETWEEN_COUNTS == 0:
            _forget_first_calls(processes)
        if "NCCL" not in line:
            continue
        if "Watchdog caught" in line and (found := patterns.TIMED_OUT.search(line)):
            if len(timeouts) < _MOST_TIMEOUTS:
                timeouts.append(_timeout(found.groupdict()))
        elif found := patterns.LINE.search(line):
            host = patterns.HOST.search(line, max(0, found.start() - _LONGEST_HOST), found.start())
            key = (host[0] if host else "", found["pid"])
            process = processes.get(key) or room.process()
            if process is None:
                continue
            processes[key] = process
            if found["level"] == "WARN":
                process.warn(found["text"].strip())
            else:
                process.read(found["thread"], found["text"].strip())
    return _capture(path, processes, timeouts, source.problem)


def _forget_first_calls(processes: Mapping[Any, LoggedProcess]) -> None:
    """Where there are too many of all processes together: each keeps its share."""
    if sum(len(process.calls) for process in processes.values()) > _MOST_CALLS:
        for process in processes.values():
            process.keep_calls(_MOST_CALLS // (2 * len(processes)) or 1)


def _lines(source: ByteSource) -> Iterator[str]:
    """The lines of a log; what is longer than any of NCCL's is cut."""
    rest = b""
    for piece in source:
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line[:_LONGEST_LINE].decode(errors="replace")
        rest = rest[:_LONGEST_LINE]
    yield rest.decode(errors="replace")


def _timeout(found: dict[str, str | None]) -> dict[str, Any]:
    """The watchdog's line as a record: nobody waits for it any more, and it did not end."""
    return {
        "rank": int(found["rank"] or 0),
        "group": found["group"] or "",
        "sequence": int(found["sequence"] or 0),
        "point_to_point": False,
        "backend": "nccl",
        "collective": (found["collective"] or "").lower(),
        "input_sizes": "[]",
        "output_sizes": "[]",
        "state": "started",
        "retired": True,
        "timeout_ns": int(found["timeout"] or 0) * 10**6,
    }


def _capture(
    path: Path,
    logged: dict[tuple[str, str], LoggedProcess],
    timeouts: list[dict[str, Any]],
    problem: str,
) -> Capture:
    found: dict[int, ProcessInfo] = {}
    records: dict[int, list[dict[str, Any]]] = {}
    again: set[int] = set()
    for (host, _), process in logged.items():
        for rank in process.ranks():
            again |= {rank} & found.keys()
            # A program that was started again: the last start counts.
            found[rank] = _process(process, rank, host)
            records[rank] = [
                call
                for call in process.calls
                if call["communicator_rank"] == rank or len(process.ranks()) == 1
            ]
    for timeout in timeouts:
        rank = timeout["rank"]
        found.setdefault(rank, ProcessInfo(rank=rank, rank_from="content"))
        records.setdefault(rank, []).append(timeout)
    if not found:
        raise CaptureError(path, "a log of NCCL without a communicator", expected=_EXPECTED)
    notes = [f"the log is cut off or damaged: {problem}"] if problem else []
    if again:
        notes.append("ranks were started more than once in this log: the last start is shown")
    processes = [found[rank] for rank in sorted(found)]
    processes[0] = _noted(processes[0], notes)
    rows = TableRows("collective_records", most=sum(map(len, records.values())))
    for rank in sorted(records):
        for number, call in enumerate(records[rank]):
            rows.add({**_without_helper(call), "rank": rank, "record": number})
    manifest = Manifest(
        tool_version=__version__,
        source=SOURCE,
        title=path.name,
        created_ns=path.stat().st_mtime_ns,
        ranks=tuple(process.rank for process in processes),
    )
    return Capture(manifest, tuple(processes), collective_records=rows.frame())


def _without_helper(call: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in call.items() if name != "communicator_rank"}


def _process(process: LoggedProcess, rank: int, host: str) -> ProcessInfo:
    communicators = tuple(process.of_rank(rank))
    version = next((one.version for one in communicators if one.version), None)
    groups = {
        one.identity: ProcessGroup(name=one.identity) for one in communicators if one.identity
    }
    return ProcessInfo(
        rank=rank,
        rank_from="content",
        world_size=process.world_size(),
        host=host_identity(host),
        fingerprint=Fingerprint(nccl=version),
        communicators=communicators,
        process_groups=tuple(groups.values()),
    )


def _noted(process: ProcessInfo, notes: list[str]) -> ProcessInfo:
    return msgspec.structs.replace(process, warnings=(*process.warnings, *notes))
