"""Gives readers damaged files, many more than the tests do, and says what each made of them.

    python scripts/fuzz_readers.py --count 20000 --reader kineto
    python scripts/fuzz_readers.py --count 500 --commands
    python scripts/fuzz_readers.py --reader kineto --start 1234 --count 1 --keep FOLDER

The end of each is a capture or one printable line. With --commands the files go to the commands
that read such, which also analyse and show them; an input then takes about a second. What fails is
named by its number, which makes the same file again. Exits with 1 where anything failed.
"""

import argparse
import faulthandler
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Final

ROOT: Final = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "support")]

from hostile_inputs import READERS  # noqa: E402
from hostile_reader import HostileReader, read_damaged, run_commands  # noqa: E402

# An input has a few hundred kilobytes, so what is above these has no bound.
_LONGEST_S: Final = 60
_MOST_BYTES: Final = 500 << 20


def main() -> int:
    arguments = _parse()
    faulthandler.enable()
    signal.signal(signal.SIGALRM, _too_long)
    names = [arguments.reader] if arguments.reader else list(READERS)
    failed = [_fuzz(READERS[name], arguments) for name in names]
    return int(any(failed))


def _fuzz(reader: HostileReader, arguments: argparse.Namespace) -> int:
    ends: Counter[str] = Counter()
    begun, peak = time.monotonic(), _peak_bytes()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as temporary:
        for number in range(arguments.start, arguments.start + arguments.count):
            folder = arguments.keep or Path(temporary) / "input"
            folder.mkdir(parents=True)
            signal.alarm(_LONGEST_S)
            try:
                ends[_end(reader, number, folder, commands=arguments.commands)] += 1
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                place = traceback.extract_tb(error.__traceback__)[-1]
                where = f"{Path(place.filename).name}:{place.lineno}"
                what = f"{type(error).__name__} at {where}: {str(error)[:300]}"
                ends["failed"] += 1
                print(f"{reader.name} --start {number}: {what}", flush=True)
                if arguments.keep:
                    traceback.print_exc()
            finally:
                signal.alarm(0)
            now = _peak_bytes()
            if now > peak + _MOST_BYTES:
                ends["failed"] += 1
                print(f"{reader.name} --start {number}: {(now - peak) >> 20} MB more", flush=True)
                peak = now
            if arguments.keep is None:
                shutil.rmtree(folder)
    told = ", ".join(f"{count} {end}" for end, count in sorted(ends.items()))
    print(f"{reader.name}: {told} in {time.monotonic() - begun:.0f} s", flush=True)
    return ends["failed"]


def _end(reader: HostileReader, number: int, folder: Path, *, commands: bool) -> str:
    if commands:
        return "used" if run_commands(reader, number, folder) else "refused"
    return "refused" if read_damaged(reader, number, folder) else "read"


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _too_long(_number: int, _frame: FrameType | None) -> None:
    raise TimeoutError(f"not done after {_LONGEST_S} s")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--reader", choices=list(READERS), help="only this one")
    parser.add_argument("--count", type=int, default=300, help="inputs for each (300)")
    parser.add_argument("--start", type=int, default=0, help="number of the first (0)")
    parser.add_argument("--commands", action="store_true", help="give them to commands")
    parser.add_argument("--keep", type=Path, help="make the input in this folder, and leave it")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
