"""One call of each version of a bench, for Nsight Compute.

`python -m gpuprof.profiler.bench.counted_bench --seconds S CAPTURE` is what `gpuprof bench
--counters` starts under `ncu`, with the capture of the bench. Its versions come in their order, on
the same data; each is called once before, and ncu counts the second call.
"""

import argparse
import sys
from pathlib import Path

import torch

from gpuprof.collectors.live import cuda
from gpuprof.profiler.bench.reading import read_bench
from gpuprof.profiler.run.counting_time import end_after
from gpuprof.reference_kernels.families import load_family
from gpuprof.roofline.bench.results import CaseResult


def main() -> None:
    """Call what the bench in the arguments timed."""
    arguments = _parse()
    report = read_bench(arguments.capture)
    # A bench without a GPU is not counted.
    assert report.device is not None
    device = torch.device(report.device.kind, report.device.index)
    torch.cuda.set_device(device)
    end_after(arguments.seconds)
    for case in report.cases:
        if case.error is None:
            _call(case, device, report.method.seed)
            torch.cuda.empty_cache()


def _call(case: CaseResult, device: torch.device, seed: int) -> None:
    family = load_family(case.family)
    (version,) = (each for each in family.versions if each.name == case.version)
    prepared = version.prepare(family.problem(case.size, case.dtype, device, seed=seed))
    prepared.call()
    if prepared.before is not None:
        prepared.before()
    cuda.synchronize()
    cuda.start_other_profiler()
    prepared.call()
    cuda.stop_other_profiler()


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m gpuprof.profiler.bench.counted_bench")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("capture", type=Path)
    return parser.parse_args(sys.argv[1:])


if __name__ == "__main__":
    main()
