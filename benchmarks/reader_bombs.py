"""How much memory and time files take that are made to take all of it.

    python benchmarks/reader_bombs.py [--folder FOLDER] [--only PART]

Writes each into a temporary folder, or into FOLDER (1.5 GB and a sparse file of 20 GB), gives it to
`gpuprof`, and measures the memory of all its processes beside that of an empty file. The end is a
capture or one line. Exits with 1 where one takes more than 500 MB or 60 s.
"""

import argparse
import gzip
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

_MOST_BYTES: Final = 500 << 20
_LONGEST_S: Final = 60.0
_PAGE_BYTES: Final = 4096
_EVENT: Final = (
    b'{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":%d,"dur":10,'
    b'"args":{"device":0,"stream":7}}'
)
_EVENTS: Final = b'"traceEvents":[' + _EVENT % 5 + b"]}"


@dataclass(frozen=True)
class Bomb:
    """One file. `write` gets the open file; it ends in .gz where its name does."""

    name: str
    write: Callable[[BinaryIO], object]
    command: tuple[str, ...] = ("analyze", "{}", "-f", "-q", "-o", "{}.gpuprof")


def _repeat(part: bytes, megabytes: int) -> Iterator[bytes]:
    piece = part * ((1 << 20) // len(part))
    return (piece for _ in range(megabytes))


def _around(before: bytes, part: bytes, megabytes: int, after: bytes) -> Callable[[BinaryIO], None]:
    return lambda file: file.writelines((before, *_repeat(part, megabytes), after))


def _half_a_trace(file: BinaryIO) -> None:
    file.write(b'{"traceEvents":[' + b",".join(_EVENT % (20 * n) for n in range(150_000)) + b',{"p')
    file.writelines(_repeat(b"\0", 200))


def _hole(file: BinaryIO) -> None:
    file.write(b'{"traceEvents":[')
    file.truncate(20 << 30)


def _baseline(before: bytes, part: bytes) -> Callable[[BinaryIO], None]:
    head = b'{"schema_version":1,"tool_version":"1","created_ns":1,"name":"x","info":{"label":"x"},'
    return _around(head + before, part, 400, b"]}")


# Two keys by which snapshots are told from other pickles, taken off again, and the first one open.
_SNAPSHOT: Final = b"\x80\x04\x8c\x08segments0\x8c\x0atotal_size0}(\x8c\x08segments"
# Of entries of a history: the memo's numbers of their keys.
_KEYS: Final = b"](\x8c\x06action\x94\x8c\x05alloc\x94\x8c\x04addr\x94\x8c\x04size\x94"
_ENTRY: Final = b"}(h\x00h\x01h\x02K\x01h\x03K\x01u"


def _one_block_everywhere(file: BinaryIO) -> None:
    frames = [{"filename": "train.py" * 30, "line": line, "name": "step"} for line in range(20)]
    block = {"address": 1, "size": 2, "state": "inactive", "frames": frames}
    segment = {"device": 0, "address": 1, "total_size": 2, "blocks": [block] * 30_000}
    pickle.dump({"segments": [segment] * 30_000, "device_traces": []}, file)


def _many_stacks(file: BinaryIO) -> None:
    frames = [{"filename": "t" * 290, "line": line, "name": "f"} for line in range(1000)]
    entries = [
        {"action": "alloc", "addr": 1, "size": 2, "time_us": 3, "frames": frames[at : at + 20]}
        for number in range(100_000)
        for at in (number % 980,)
    ]
    pickle.dump({"segments": [], "device_traces": [entries]}, file)


def _communicators(file: BinaryIO) -> None:
    line = "n:%d:1 [0] NCCL INFO comm 0x%x rank 0 nranks 2 cudaDev 0 - Init COMPLETE\n"
    file.writelines((line % (number >> 9, number)).encode() for number in range(2_000_000))


def _calls(file: BinaryIO) -> None:
    file.write(b"n:1:1 [0] NCCL INFO comm 0x5 rank 0 nranks 2 cudaDev 0 - Init COMPLETE\n")
    line = (
        "n:%d:1 [0] NCCL INFO AllReduce: opCount %x sendbuff 1 count 8 datatype 7 op 0 "
        "comm 0x5 [nranks=2]\n"
    )
    for number in range(1_500_000):
        if number % 10_000 == 0:
            start = "n:%d:1 [0] NCCL INFO comm 0x5 rank %d nranks 900 cudaDev 0 - Init COMPLETE\n"
            file.write((start % (number // 10_000, number // 10_000)).encode())
        file.write((line % (number // 10_000, number)).encode())


_RESULTS: Final = ("gate", "results", "--base", "{}", "--head", "{}")
BOMBS: Final = (
    Bomb("empty.json", lambda file: file.write(b"{" + _EVENTS)),
    Bomb("zeros.json.gz", _around(b"", b"\0", 120, b"")),
    Bomb("control_header.json.gz", _around(b'{"a":"', b"\x01", 60, b'",' + _EVENTS)),
    Bomb("backslash_header.json.gz", _around(b'{"a":"', b"\\", 60, b'",' + _EVENTS)),
    Bomb("wide_header.json.gz", _around(b'{"a":[', b"{},", 60, b"0]," + _EVENTS)),
    Bomb("deep.json", _around(b'{"traceEvents":[', b"[", 200, b"")),
    Bomb("long_event.json", _around(b'[{"ph":"X","name":"', b"\x01", 60, b'"},')),
    Bomb("braces.json", _around(b'{"traceEvents":[', b"{},", 200, b"")),
    Bomb("numbers.json", _around(b"[", b"1,", 200, b"")),
    Bomb("half_a_trace.json", _half_a_trace),
    Bomb("hole.json", _hole),
    Bomb("line.csv", _around(b'"ID","Kernel Name"\n"0","', b"7", 300, b"")),
    Bomb("header.csv", _around(b'"ID","Kernel Name"', b',"x"', 240, b"\n")),
    Bomb("lists.pickle.gz", _around(_SNAPSHOT, b"]", 250, b"u.")),
    Bomb("sets.pickle.gz", _around(_SNAPSHOT, b"\x8f", 250, b"u.")),
    Bomb("dictionaries.pickle", _around(_SNAPSHOT, b"}(K\x01K\x01u", 100, b"u.")),
    Bomb("entries.pickle.gz", _around(_SNAPSHOT + _KEYS, _ENTRY, 25, b"eu.")),
    Bomb("one_block.pickle", _one_block_everywhere),
    Bomb("many_stacks.pickle", _many_stacks),
    Bomb("dump.json.gz", _around(b'{"pg_config":{},"entries":[],"x":[', b"{},", 100, b"0]}")),
    Bomb(
        "dump.pickle",
        _around(b"\x80\x02}(X\x09\x00\x00\x00pg_configX\x07\x00\x00\x00entries", b"](", 2, b""),
    ),
    Bomb("communicators.log", _communicators),
    Bomb("calls.log", _calls),
    Bomb(
        "colons.log", _around(b"n:1:1 [0] NCCL INFO x\n", b"n:1:1 [0] " * 100 + b"NCCL\n", 20, b"")
    ),
    Bomb("details.json", _around(b'[{"model_id":[', b"1.5,", 200, b"1]}]"), _RESULTS),
    Bomb("objects.json.gz", _around(b'[{"model_id":[', b"{},", 200, b"1]}]"), _RESULTS),
    Bomb("gpuprof.toml", _around(b"", b"[a]\n", 200, b""), ("gate", "plan", "--config", "{}")),
    Bomb("claims.toml", _around(b"", b"[[claim]]\n", 200, b""), ("bench", "--claims", "{}")),
    Bomb(
        "unknown_field.json.gz",
        _baseline(b'"x":[', b"[],"),
        ("baseline", "list", "--folder", "{folder}"),
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, help="where to write the files")
    parser.add_argument("--only", default="", metavar="PART", help="those with this in their name")
    arguments = parser.parse_args()
    chosen = arguments.folder
    bombs = [BOMBS[0], *(bomb for bomb in BOMBS[1:] if arguments.only in bomb.name)]
    with nullcontext(chosen) if chosen else tempfile.TemporaryDirectory() as place:
        results = [_measure(bomb, Path(place) / Path(bomb.name).stem) for bomb in bombs]
    base_bytes = results[0][0]
    failed = 0
    for bomb, (peak_bytes, seconds, said) in zip(bombs, results, strict=True):
        more = peak_bytes - base_bytes
        too_much = more > _MOST_BYTES or seconds > _LONGEST_S
        failed += too_much
        mark = "!" if too_much else " "
        print(f"{mark} {bomb.name:26} {more / 1e6:6.0f} MB more {seconds:6.1f} s  {said[:90]}")
    return int(failed > 0)


def _measure(bomb: Bomb, folder: Path) -> tuple[int, float, str]:
    """The peak of its processes' memory in bytes, the seconds, and the last line that was said."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / bomb.name
    with gzip.open(path, "wb", 9) if path.suffix == ".gz" else path.open("wb") as file:
        bomb.write(file)
    words = [
        word.replace("{folder}", str(folder)).replace("{}", str(path)) for word in bomb.command
    ]
    begun, peak = time.monotonic(), 0
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "gpuprof", *words], stdout=output, stderr=output
        )
        while process.poll() is None:
            peak = max(peak, _resident_bytes(process.pid))
            if time.monotonic() - begun > _LONGEST_S or peak > 8 * _MOST_BYTES:
                process.kill()
            time.sleep(0.02)
        output.seek(0)
        said = output.read().strip().splitlines()
    path.unlink()
    return peak, time.monotonic() - begun, said[-1].replace(str(folder), "") if said else "read"


def _resident_bytes(process: int) -> int:
    """Of a process and its children; what ended meanwhile has none."""
    try:
        own = int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE_BYTES
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return 0
    return own + sum(map(_resident_bytes, map(int, children)))


if __name__ == "__main__":
    sys.exit(main())
