"""A visit to a GPU for the families gemm and convolution.

    python tests/gpu/visit_kernels_gemm.py check [FAMILY/VERSION...]
    python tests/gpu/visit_kernels_gemm.py time [gemm|convolution]
    ncu ... python tests/gpu/visit_kernels_gemm.py once FILE
    python tests/gpu/visit_kernels_gemm.py compare FILE NCU_CSV

check: every version against float64, in every dtype, at sizes that fit no tile, with all tiles that
it tries. time: versions in turn with the L2 flushed, with ratios to the fastest library. once: one
call of each version between cudaProfilerStart and Stop, a spin kernel after each, and what its
docstring expects in FILE. compare: what ncu counted against FILE; needs no GPU.
"""

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median

import msgspec
import torch
from every_tiling import each_tiling

from gpuprof.collectors.ncu.reader import read
from gpuprof.reference_kernels.benching.timing import EventClock
from gpuprof.reference_kernels.families import is_library, load_family, select
from gpuprof.reference_kernels.suite import (
    Prepared,
    Problem,
    UnsupportedError,
    Version,
    poison,
    relative_error,
)
from gpuprof.roofline.cost_models.cost import Flops
from gpuprof.roofline.counters import executed_by_launch

FAMILIES = ("gemm", "convolution")
CHECKED = {
    "gemm": (
        "513x777x1031",
        "136x264x72",
        "256x512x1024",
        "1x1000x4097",
        "5g700x264x136",
        "300x264x136+gelu",
        "257x264x136+relu",
    ),
    "convolution": (
        "2x64x29x31-96x3x3-p1",
        "2x16x17x19-48x3x3-p1-s2-d2-g2",
        "3x3x33x35-64x7x7-s2-p3",
        "3x3x33x35-64x5x5-s2-p3",
        "1x64x20x20-128x1x1",
        "2x64x15x17-72x3x3-p1+bn-relu",
    ),
}
TIMED = {
    "gemm": (
        ("4096x4096x4096", "bf16"),
        ("8192x8192x8192", "bf16"),
        ("4096x4096x4096", "fp16"),
        ("4096x4096x4096", "fp8"),
        ("8192x8192x8192", "fp8"),
        ("4096x4096x4096", "int8"),
        ("4096x4096x4096", "tf32"),
        ("4096x4096x4096", "fp32"),
        ("16384x256x4096", "bf16"),
        ("1x14336x4096", "bf16"),
        ("8g4096x4096x4096", "bf16"),
        ("4096x4096x4096+gelu", "bf16"),
    ),
    "convolution": (
        ("32x64x56x56-64x3x3-p1", "fp16"),
        ("32x128x56x56-128x3x3-p1", "fp16"),
        ("32x256x28x28-256x3x3-p1", "fp16"),
        ("32x512x28x28-512x3x3-p1", "fp16"),
        ("32x3x224x224-64x7x7-s2-p3", "fp16"),
        ("32x256x28x28-256x3x3-p1+bn-relu", "fp16"),
        ("32x256x28x28-256x3x3-p1", "tf32"),
        ("32x256x28x28-256x3x3-p1", "fp32"),
    ),
}
COUNTED = {
    "gemm": (
        ("4096x4096x4096", "bf16"),
        ("4096x4096x4096", "fp8"),
        ("4096x4096x4096", "int8"),
        ("4096x4096x4096", "fp32"),
        ("1x14336x4096", "bf16"),
        ("8g4096x4096x4096", "bf16"),
        ("4096x4096x4096+gelu", "bf16"),
    ),
    "convolution": (
        ("32x256x28x28-256x3x3-p1", "fp16"),
        ("32x256x28x28-256x3x3-p1", "fp32"),
        ("32x256x28x28-256x3x3-p1+bn-relu", "fp16"),
    ),
}
ROUNDS = 20
_MARKER = "spin_kernel"


class Expected(msgspec.Struct):
    """What a version's docstring says one call costs."""

    label: str
    size: str
    dtype: str
    flops: tuple[Flops, ...]
    bytes_read: int
    bytes_written: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=("check", "time", "once", "compare"))
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    names: list[str] = arguments.names
    if arguments.mode == "check":
        return check(names or list(FAMILIES))
    if arguments.mode == "time":
        return time_versions(names or list(FAMILIES))
    if arguments.mode == "once":
        return call_once(Path(names[0]))
    return compare(Path(names[0]), Path(names[1]))


def check(names: list[str]) -> int:
    """Fresh random inputs in every dtype and size; exit code 1 where a result is wrong."""
    wrong = 0
    for family in select(names):
        for version in family.versions:
            for size in CHECKED[family.name]:
                for dtype in version.dtypes:
                    attempt = partial(_check_one, version, family.problem, size, dtype)
                    for found in each_tiling(attempt):
                        wrong += found.startswith("WRONG")
                        if found:
                            print(f"{version.label:34} {size:32} {dtype:5} {found}", flush=True)
    print(f"{names}: {wrong} wrong")
    return int(wrong > 0)


def _check_one(version: Version, kind: type[Problem], size: str, dtype: str) -> str:
    try:
        problem = kind(size, dtype, torch.device("cuda"), seed=torch.seed() % 2**31)
        prepared = version.prepare(problem)
    except (UnsupportedError, ValueError):
        return ""
    # A version that fails in any way must not hide the others.
    except Exception as error:
        return f"WRONG: {type(error).__name__}: {str(error)[:300]}"
    poison(prepared.outputs)
    prepared.call()
    error_found = relative_error(prepared.outputs, problem.reference())
    verdict = "right" if error_found <= problem.tolerance else "WRONG"
    return f"{verdict}: error {error_found:.1e}, of {problem.tolerance:.0e}; {prepared.note}"


def time_versions(families: list[str]) -> int:
    """A table of medians; every version is called once a round."""
    clock = EventClock(None)
    for name in families:
        for size, dtype in TIMED[name]:
            prepared = dict(_prepared(name, size, dtype))
            problem = load_family(name).problem(size, dtype, torch.device("cuda"))
            times: dict[str, list[int]] = {label: [] for label in prepared}
            for _ in range(ROUNDS):
                for label, ready in prepared.items():
                    (sample,) = clock.sample(ready, lambda: None, 1)
                    times[label].append(sample.time_ns)
            medians = {label: median(found) for label, found in times.items()}
            libraries = [t for label, t in medians.items() if is_library(label.split("/")[1])]
            best = min(libraries) if libraries else None
            flops = problem.work().flops[0].count
            for label, ns in medians.items():
                ratio = "" if best is None else f"{100 * best / ns:6.1f} %"
                rate = f"{ns / 1e3:10.1f} us {flops / ns / 1e3:7.1f} TFLOP/s"
                note = prepared[label].note[:150]
                print(f"{size:32} {dtype:5} {label:34} {rate} {ratio} {note}", flush=True)
            del prepared
            torch.cuda.empty_cache()
    return 0


def _prepared(family: str, size: str, dtype: str) -> Iterator[tuple[str, Prepared]]:
    """Every version that solves this problem, warm."""
    loaded = load_family(family)
    problem = loaded.problem(size, dtype, torch.device("cuda"))
    for version in loaded.versions:
        try:
            prepared = version.prepare(problem)
        except UnsupportedError:
            continue
        prepared.call()
        yield version.label, prepared


def call_once(file: Path) -> int:
    """For ncu: --profile-from-start off."""
    runtime = torch.cuda.cudart()
    expected = []
    for family in FAMILIES:
        for size, dtype in COUNTED[family]:
            work = load_family(family).problem(size, dtype, torch.device("cuda")).work()
            for label, prepared in _prepared(family, size, dtype):
                torch.cuda.synchronize()
                runtime.cudaProfilerStart()
                prepared.call()
                torch.cuda._sleep(1)
                torch.cuda.synchronize()
                runtime.cudaProfilerStop()
                read_bytes, written = prepared.expected_bytes_read, prepared.expected_bytes_written
                expected.append(
                    Expected(
                        label,
                        size,
                        dtype,
                        prepared.executed_flops or work.flops,
                        work.bytes_read if read_bytes is None else read_bytes,
                        work.bytes_written if written is None else written,
                    )
                )
                file.write_bytes(msgspec.json.encode(expected))
                print(label, size, dtype, file=sys.stderr, flush=True)
    return 0


def compare(file: Path, csv: Path) -> int:
    """Counted over expected, for FLOPs and bytes; kernels between two markers are one version's."""
    expected = msgspec.json.decode(file.read_bytes(), type=list[Expected])
    capture = read(csv)
    executed = executed_by_launch(capture.counters)
    calls: list[list[tuple[str, object]]] = [[]]
    names = capture.kernels["name"].to_list()
    for name, work in zip(names, executed.values(), strict=True):
        if _MARKER in name:
            calls.append([])
        else:
            calls[-1].append((name, work))
    for one, launches in zip(expected, calls, strict=False):
        works = [work for _, work in launches]
        parts = [part for work in works for part in work.flops]  # type: ignore[attr-defined]
        tensor = sum(part.count for part in parts if part.unit == "tensor")
        # Where only products are promised, what the vector units do beside them is not counted.
        products_only = tensor > 0 and all(part.kind == "matmul" for part in one.flops)
        counted = tensor if products_only else sum(part.count for part in parts)
        read_bytes = sum(work.dram_bytes_read or 0 for work in works)  # type: ignore[attr-defined]
        written = sum(work.dram_bytes_written or 0 for work in works)  # type: ignore[attr-defined]
        promised = sum(part.count for part in one.flops)
        print(
            f"{one.label:34} {one.size:32} {one.dtype:5} {len(works)} kernels, "
            f"FLOPs {counted / max(promised, 1):6.3f} of {promised:.4g}, "
            f"read {read_bytes / one.bytes_read:6.3f} of {one.bytes_read / 1e6:.1f} MB, "
            f"written {written / one.bytes_written:6.3f} of {one.bytes_written / 1e6:.1f} MB"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
