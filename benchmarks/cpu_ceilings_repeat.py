"""Do the ceilings of a CPU repeat?

    python benchmarks/cpu_ceilings_repeat.py [--times N] [--competing N]

Calibrates in N fresh processes and prints each ceiling with its range over them: on a quiet machine
within 5 %. With --competing as many busy loops run beside it: then each ceiling must stay within
5 % of the highest, or be refused. Nothing is read from the user's cache or kept in it.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from gpuprof.collectors.manifest import Calibration
from gpuprof.reports.json_answers.of_machines import Calibrations

AGREEMENT = 0.05


def calibrate_once(folder: Path) -> Calibration:
    """The CPU's calibration by a process of its own."""
    file = folder / "calibrations.json"
    done = subprocess.run(
        [*(sys.executable, "-m", "gpuprof", "calibrate"), "--device", "cpu", "--json", str(file)],
        env={**os.environ, "XDG_CACHE_HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    # 1: something was refused.
    if done.returncode not in (0, 1) or not file.exists():
        raise SystemExit(done.stderr)
    (found,) = msgspec.json.decode(file.read_bytes(), type=Calibrations).calibrations
    return found


@contextmanager
def competing(number: int) -> Iterator[None]:
    """Busy loops beside what runs meanwhile."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def main() -> int:
    """Measure, print, and return 1 where a ceiling does not repeat, or a quiet machine has none."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--competing", type=int, default=0)
    options = parser.parse_args()
    rates: dict[str, list[float]] = {}
    refused: dict[str, int] = {}
    for number in range(options.times):
        with competing(options.competing), tempfile.TemporaryDirectory() as folder:
            found = calibrate_once(Path(folder))
        for ceiling in found.ceilings:
            rates.setdefault(ceiling.name, []).append(ceiling.rate)
        for name in found.refused:
            refused[name] = refused.get(name, 0) + 1
        others = "unknown" if found.other_work is None else f"{found.other_work:.0%}"
        print(f"calibration {number + 1}: other work {others}, refused {len(found.refused)}")
    worst = 0.0
    for name in sorted({*rates, *refused}):
        values = rates.get(name, [])
        text = f"{name:15} refused {refused.get(name, 0)} of {options.times}"
        if values:
            differ = max(values) / min(values) - 1
            worst = max(worst, differ)
            text += f", {min(values) / 1e9:.4g} to {max(values) / 1e9:.4g} G/s, {differ:.1%} apart"
        print(text)
    if not rates:
        print("nothing was measured: all was refused")
        return int(options.competing == 0)
    print(f"largest difference {worst:.1%}, wanted at most {AGREEMENT:.0%}")
    return int(worst > AGREEMENT)


if __name__ == "__main__":
    sys.exit(main())
