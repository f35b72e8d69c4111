"""Does gpuprof report the step time that the same loop has without it, in one process?

    python benchmarks/step_time_interleaved.py [--pairs N] [SCRIPT ...]

Blocks of steps alternate: one timed by plain CUDA events (the host's clock on a CPU), one under
`gpuprof.profile`. Both are warm-up steps and then the same number of timed ones. Printed are the
medians over the blocks and the median of the pairs' ratios. Processes that start anew differ by
more than gpuprof could: see step_time.py for those.
"""

import argparse
import importlib
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import gpuprof

SCRIPTS = Path(__file__).parent / "scripts"


def capture_step(name: str) -> Callable[[], None]:
    """The step function of a script, without running its loop."""
    import self_timing

    taken: list[Callable[[], None]] = []
    self_timing.run = lambda step, steps: taken.append(step)
    importlib.import_module(name)
    return taken[0]


def alone_ns(step: Callable[[], None]) -> float:
    """Median step time of one block without gpuprof."""
    import self_timing

    for _ in range(self_timing.WARMUP):
        step()
    return self_timing.median_ns(step)


def with_gpuprof_ns(step: Callable[[], None]) -> float:
    """Median step time that gpuprof reports for one block."""
    with tempfile.TemporaryDirectory() as folder:
        # One step more than the phases need: the profiler's own warm-up.
        with gpuprof.profile(Path(folder) / "out.gpuprof", profiled=1) as profiled:
            for _ in range(18):
                step()
        assert profiled.analysis is not None
        median_ns = profiled.analysis.steps.median_ns
    assert median_ns is not None
    return float(median_ns)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scripts", nargs="*", default=["launch_bound", "llama_block"])
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--json", type=Path, help="also write every block here")
    arguments = parser.parse_args()
    sys.path.insert(0, str(SCRIPTS))
    blocks: dict[str, list[tuple[float, float]]] = {}
    print(f"{'script':14} {'alone us':>10} {'gpuprof us':>11} {'ratio':>6} {'quartiles':>15}")
    for name in arguments.scripts:
        step = capture_step(name)
        alone_ns(step)
        blocks[name] = [(alone_ns(step), with_gpuprof_ns(step)) for _ in range(arguments.pairs)]
        print(_row(name, blocks[name]), flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(blocks, indent=1))


def _row(name: str, pairs: list[tuple[float, float]]) -> str:
    ratios = [ours / alone for alone, ours in pairs]
    lower, middle, upper = statistics.quantiles(ratios, n=4)
    alone, ours = (statistics.median(column) / 1e3 for column in zip(*pairs, strict=True))
    return f"{name:14} {alone:10.1f} {ours:11.1f} {middle:6.3f} [{lower:6.3f},{upper:6.3f}]"


if __name__ == "__main__":
    main()
