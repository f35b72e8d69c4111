"""Do gpuprof's timed steps and its later steps stand for the program?

    python benchmarks/steady.py [--rounds N] [--json FILE] [PROGRAM ...]

Each round runs each program alone and then under `gpuprof run`, as fresh processes. Alone it times
the last third of its own steps by CUDA events (the host's clock without a GPU); gpuprof reports
its timed steps and those after the profiled ones. Printed are medians over the rounds and the
medians of the rounds' ratios to the program alone.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAMS = Path(__file__).parent / "steady_programs"


def alone_ns(program: Path) -> float:
    """What the program prints of its own steady step."""
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, check=True
    )
    return float(done.stdout.split()[-1])


def with_gpuprof(program: Path) -> dict[str, float | None]:
    """The steps of the program under gpuprof, and what the program itself saw at its end."""
    with tempfile.TemporaryDirectory() as folder:
        capture = Path(folder) / "out.gpuprof"
        command = [sys.executable, "-m", "gpuprof", "run", "-q", "-o", str(capture), str(program)]
        environment = {**os.environ, "KINETO_LOG_LEVEL": "5"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        analysis = json.loads((capture / "analysis.json").read_bytes())
    steps = analysis["steps"]
    return {
        "timed": steps["median_ns"],
        "later": steps["later_median_ns"],
        "itself": float(done.stdout.split()[-1]),
        "warnings": len(analysis["warnings"]),
    }


def main() -> None:
    """Measure and print the table."""
    names = sorted(path.stem for path in PROGRAMS.glob("*.py") if path.stem != "loop")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", default=names)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write every round here")
    arguments = parser.parse_args()
    rounds: dict[str, list[dict[str, float | None]]] = {}
    heads = ("alone ms", "timed", "later", "alone, under gpuprof")
    print(f"{'program':20}" + "".join(f"{head:>22}" for head in heads))
    for name in arguments.programs:
        try:
            rounds[name] = [
                {
                    "alone": alone_ns(PROGRAMS / f"{name}.py"),
                    **with_gpuprof(PROGRAMS / f"{name}.py"),
                }
                for _ in range(arguments.rounds)
            ]
        except subprocess.CalledProcessError as error:
            print(f"{name:20} failed: {(error.stderr or '').strip().splitlines()[-1:]}", flush=True)
            continue
        print(f"{name:20}" + _row(rounds[name]), flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rounds, indent=1))


def _row(rounds: list[dict[str, float | None]]) -> str:
    alone = statistics.median(each["alone"] or 0.0 for each in rounds)
    cells = [f"{alone / 1e6:22.3f}"]
    for key in ("timed", "later", "itself"):
        pairs = [
            (value, each["alone"])
            for each in rounds
            if (value := each[key]) is not None and each["alone"]
        ]
        ratio = statistics.median(value / own for value, own in pairs if own) if pairs else None
        cells.append(f"{'-' if ratio is None else f'{ratio:.3f}':>22}")
    return "".join(cells)


if __name__ == "__main__":
    main()
