"""How long do the commands take that only answer?

    python benchmarks/startup.py [--rounds N]

Whole processes, interleaved with a python that does nothing; printed are medians and the ratio to
that python. The capture is the recorded H200 run of the tests, stored with its analysis.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpuprof.collectors import storage
from gpuprof.profiler.captures import store
from gpuprof.roofline.analyze import analyze

RECORDING = Path(__file__).parent.parent / "tests" / "data" / "captures" / "h200_llama_block"


def seconds(command: list[str]) -> float:
    """Wall time of one process."""
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.gpuprof"
        capture = storage.load(RECORDING)
        store(capture, analyze(capture), path)
        gpuprof = [sys.executable, "-m", "gpuprof"]
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "gpuprof --help": [*gpuprof, "--help"],
            "gpuprof summary": [*gpuprof, "summary", str(path)],
            "gpuprof report": [*gpuprof, "report", "-f", str(path), "-o", f"{folder}/page.html"],
        }
        times = {name: [] for name in commands}
        for _ in range(rounds):
            for name, command in commands.items():
                times[name].append(seconds(command))
    nothing = statistics.median(times["python -c pass"])
    print(f"{'command':18} {'s':>6} {'x python':>9}")
    for name, of_command in times.items():
        median = statistics.median(of_command)
        print(f"{name:18} {median:6.3f} {median / nothing:9.1f}")


if __name__ == "__main__":
    main()
