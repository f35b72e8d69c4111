"""How much memory and time files take that are made to take all of it.

    python benchmarks/reader_bombs.py [--folder FOLDER]

Writes each into a temporary folder, or into FOLDER (1.5 GB and a sparse file of 20 GB), gives it to
`gpuprof`, and measures the memory of all its processes beside that of an empty file. The end is a
capture or one line. Exits with 1 where one takes more than 500 MB or 60 s.
"""

import argparse
import gzip
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
    Bomb(
        "unknown_field.json.gz",
        _baseline(b'"x":[', b"[],"),
        ("baseline", "list", "--folder", "{folder}"),
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, help="where to write the files")
    chosen = parser.parse_args().folder
    with nullcontext(chosen) if chosen else tempfile.TemporaryDirectory() as place:
        results = [_measure(bomb, Path(place) / Path(bomb.name).stem) for bomb in BOMBS]
    base_bytes = results[0][0]
    failed = 0
    for bomb, (peak_bytes, seconds, said) in zip(BOMBS, results, strict=True):
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
