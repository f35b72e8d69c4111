"""Does gpuprof report the step time that a script has without it?

    python benchmarks/step_time.py [--rounds N] [SCRIPT ...]

Each round starts three processes one after the other: the script measuring itself, the script
under `gpuprof run`, and the script measuring itself under torch.profiler. Printed are the medians
over the rounds and the median of the rounds' ratios, so that a machine that drifts does not count.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"


@dataclass(frozen=True)
class Round:
    """Step times of one script in one round, in ns."""

    alone: float
    gpuprof: float
    torch_profiler: float


def measure_itself(script: Path, how: str) -> float:
    """What the script prints of its own step time."""
    environment = {**os.environ, "SELF_TIMING": how, "KINETO_LOG_LEVEL": "5"}
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, check=True
    )
    return float(done.stdout.split()[-1])


def measure_with_gpuprof(script: Path) -> float:
    """What gpuprof reports for the script."""
    with tempfile.TemporaryDirectory() as folder:
        capture = Path(folder) / "out.gpuprof"
        command = [sys.executable, "-m", "gpuprof", "run", "-q", "--stop-after"]
        subprocess.run([*command, "-o", str(capture), str(script)], check=True)
        analysis = json.loads((capture / "analysis.json").read_bytes())
    return float(analysis["steps"]["median_ns"])


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scripts", nargs="*", default=["launch_bound", "llama_block"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="also write every round here")
    arguments = parser.parse_args()
    rounds: dict[str, list[Round]] = {name: [] for name in arguments.scripts}
    for _ in range(arguments.rounds):
        for name, of_script in rounds.items():
            script = SCRIPTS / f"{name}.py"
            of_script.append(
                Round(
                    alone=measure_itself(script, "clock"),
                    gpuprof=measure_with_gpuprof(script),
                    torch_profiler=measure_itself(script, "profiler"),
                )
            )
    print(f"{'script':14} {'alone us':>10} {'gpuprof us':>11} {'ratio':>6} {'[min, max]':>15}"
          f" {'torch.profiler us':>18} {'ratio':>6}")  # fmt: skip
    for name, of_script in rounds.items():
        print(_row(name, of_script))
    if arguments.json is not None:
        rows = {name: [vars(r) for r in of_script] for name, of_script in rounds.items()}
        arguments.json.write_text(json.dumps(rows, indent=1))


def _row(name: str, rounds: list[Round]) -> str:
    ours = [r.gpuprof / r.alone for r in rounds]
    theirs = [r.torch_profiler / r.alone for r in rounds]
    alone, gpuprof, torch_profiler = (
        statistics.median(getattr(r, field) for r in rounds) / 1e3
        for field in ("alone", "gpuprof", "torch_profiler")
    )
    return (
        f"{name:14} {alone:10.1f} {gpuprof:11.1f} {statistics.median(ours):6.3f}"
        f" [{min(ours):6.3f},{max(ours):6.3f}] {torch_profiler:18.1f}"
        f" {statistics.median(theirs):6.3f}"
    )


if __name__ == "__main__":
    main()
