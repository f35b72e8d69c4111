"""A visit to a GPU for the reference kernels of one GPU.

    python tests/gpu/visit_kernels.py check [FAMILY/VERSION...]
    python tests/gpu/visit_kernels.py time [FAMILY...]
    ncu ... python tests/gpu/visit_kernels.py once FILE [FAMILY...]
    python tests/gpu/visit_kernels.py compare FILE NCU_CSV

check: every version against float64, in every dtype, at sizes that fit no tile, with all tiles that
it tries. time: versions in turn with the L2 flushed, with their ratio to the fastest library, or of
what memory bounds, to the copy bandwidth measured in the same run. once, for ncu with
--profile-from-start off: one call of each version between cudaProfilerStart and Stop, a spin kernel
after each, and what its docstring expects in FILE. compare: what ncu counted against FILE; needs no
GPU. Without a GPU check and time take the versions that run on a CPU.
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
from gpuprof.reference_kernels.benching.timing import Clock, EventClock, HostClock
from gpuprof.reference_kernels.families import load_family, select
from gpuprof.reference_kernels.suite import (
    Prepared,
    Problem,
    UnsupportedError,
    Version,
    poison,
    relative_error,
)
from gpuprof.roofline.bench.libraries import is_library
from gpuprof.roofline.cost_models.cost import Flops
from gpuprof.roofline.measured.counters import executed_by_launch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
# Bound by memory: compared with the copy bandwidth.
STREAMING = ("stream", "elementwise", "softmax", "norm")
FAMILIES = ("gemm", "convolution", "attention", *STREAMING, "model")
CHECKED = {
    "gemm": (
        "513x777x1031",
        "136x264x72",
        "256x512x1024",
        "1x1000x4097",
        "13x1000x1030",
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
        "1x128x17x19-72x3x3-p1-s2-d2",
        "2x64x9x11-264x5x3-p2",
        "2x64x15x17-72x3x3-p1+bn-relu",
    ),
    "attention": (
        "causal-forward:2x4x2x333x64",
        "causal-forward:2x4x2x333x128",
        "causal-forward:1x3x3x100x32",
        "causal-forward:1x8x8x4096x128",
        "forward:2x4x4x333x128",
        "forward:2x4x2x1000x64",
        "forward:1x3x3x333x16",
        "causal-backward:2x4x2x333x64",
        "causal-backward:1x8x8x2048x128",
        "backward:1x3x3x333x128",
        "causal-backward:1x4x2x333x128",
        "decode:5x8x2x333x128",
        "decode:3x4x4x1000x64",
        "decode:5x8x2x100x128",
    ),
    "elementwise": ("gelu:77x1003", "swiglu:77x1003", "rotary:3x37x5x128", "rotary:3x37x5x6"),
    "softmax": ("77x1003", "65x4096", "3x17001", "300x31", "3000x1000", "700x16384"),
    "norm": (
        *("layer:77x1003", "rms:77x1003", "layer:65x4096", "rms:3x17001"),
        *("layer:700x16384", "rms:3000x1000"),
    ),
    "stream": ("copy:1000003", "triad:1000003"),
    "model": ("prefill:tiny:2x2x77", "decode:tiny:2x2x77", "train:tiny:2x2x77"),
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
    "attention": (
        ("causal-forward:4x32x32x4096x128", "bf16"),
        ("forward:4x32x8x4096x128", "bf16"),
        ("causal-backward:4x32x32x4096x128", "bf16"),
        ("decode:64x32x8x4096x128", "bf16"),
    ),
    "elementwise": (
        ("gelu:16384x8192", "bf16"),
        ("gelu:16384x16384", "bf16"),
        ("gelu:16384x8192", "fp32"),
        ("swiglu:16384x8192", "bf16"),
        ("rotary:8x4096x32x128", "bf16"),
    ),
    "softmax": (("32768x4096", "bf16"), ("8192x16384", "bf16"), ("16384x4096", "fp32")),
    "norm": (
        ("layer:32768x4096", "bf16"),
        ("rms:32768x4096", "bf16"),
        ("layer:16384x4096", "fp32"),
        ("rms:16384x4096", "fp32"),
    ),
    "stream": (
        ("copy:256MiB", "fp32"),
        ("triad:256MiB", "fp32"),
        ("copy:1GiB", "fp32"),
        ("triad:1GiB", "fp32"),
    ),
    "model": (
        ("prefill:7b:1x1x2048", "fp16"),
        ("decode:7b:1x1x2048", "fp16"),
        ("train:7b:1x1x2048", "bf16"),
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
    "attention": (
        ("causal-forward:1x32x32x4096x128", "bf16"),
        ("causal-backward:1x32x32x4096x128", "bf16"),
        ("decode:64x32x8x4096x128", "bf16"),
    ),
    "elementwise": (
        ("gelu:16384x8192", "bf16"),
        ("swiglu:16384x8192", "bf16"),
        ("rotary:8x4096x32x128", "bf16"),
    ),
    "softmax": (("32768x4096", "bf16"),),
    "norm": (("layer:32768x4096", "bf16"), ("rms:32768x4096", "bf16")),
    "stream": (("copy:256MiB", "fp32"), ("triad:256MiB", "fp32")),
    "model": (("prefill:7b:1x1x2048", "fp16"), ("decode:7b:1x1x2048", "fp16")),
}
COMPILED = "torch-compile"
COPY = ("copy:1GiB" if DEVICE.type == "cuda" else "copy:64MiB", "fp32")
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
        return call_once(Path(names[0]), names[1:] or list(FAMILIES))
    return compare(Path(names[0]), Path(names[1]))


def check(names: list[str]) -> int:
    """Fresh random inputs in every dtype and size; exit code 1 where a result is wrong."""
    wrong = 0
    for family in select(names):
        for version in family.versions:
            for size in CHECKED[family.name]:
                # One dtype of what takes seconds to compile.
                for dtype in version.dtypes[: 1 if version.name == COMPILED else None]:
                    attempt = partial(_check_one, version, family.problem, size, dtype)
                    for found in each_tiling(attempt):
                        wrong += found.startswith("WRONG")
                        print(f"{version.label:34} {size:32} {dtype:5} {found}", flush=True)
    print(f"{names}: {wrong} wrong")
    return int(wrong > 0)


def _check_one(version: Version, kind: type[Problem], size: str, dtype: str) -> str:
    try:
        problem = kind(size, dtype, DEVICE, seed=torch.seed() % 2**31)
        prepared = version.prepare(problem)
    # ValueError: the dtype has no such sizes.
    except (UnsupportedError, ValueError) as refused:
        return f"refused: {str(refused)[:80]}"
    # A version that fails in any way must not hide the others.
    except Exception as error:
        return f"WRONG: {type(error).__name__}: {str(error)[:300]}"
    for _ in range(2):
        poison(prepared.outputs)
        prepared.call()
    error_found = relative_error(prepared.outputs, problem.reference())
    verdict = "right" if error_found <= problem.tolerance else "WRONG"
    return f"{verdict}: error {error_found:.1e}, of {problem.tolerance:.0e}; {prepared.note}"


def time_versions(families: list[str]) -> int:
    """A table of medians; every version is called once a round."""
    clock: Clock = EventClock(None) if DEVICE.type == "cuda" else HostClock()
    for name in families:
        for size, dtype in TIMED[name]:
            problem = load_family(name).problem(size, dtype, DEVICE)
            prepared = dict(_prepared(name, problem))
            ready = dict(prepared)
            if name in STREAMING:
                copied = load_family("stream").problem(*COPY, DEVICE)
                ready["copy"] = dict(_prepared("stream", copied, "torch"))["stream/torch"]
            medians = _medians(clock, ready)
            work = problem.work()
            moved, flops = work.bytes_read + work.bytes_written, sum(f.count for f in work.flops)
            libraries = {
                label: ns for label, ns in medians.items() if is_library(label.rpartition("/")[2])
            }
            fastest = min(libraries, key=libraries.__getitem__, default=None)
            for label in prepared:
                ns = medians[label]
                if name in STREAMING:
                    bandwidth = 2 * copied.a.nbytes / medians["copy"]
                    ratio = f"{moved / ns / bandwidth:6.3f} of copy's {bandwidth:.0f} GB/s"
                else:
                    ratio = f"{libraries[fastest] / ns:6.3f} of the library" if fastest else ""
                if fastest in prepared and name != "model":
                    # The time of a wrong result is no result. (A model's outputs fill the GPU.)
                    given = tuple(output.double() for output in prepared[fastest].outputs)
                    ratio += (
                        f", differs from it by {relative_error(prepared[label].outputs, given):.0e}"
                    )
                rate = f"{ns / 1e3:9.1f} us {flops / ns / 1e3:6.1f} TFLOP/s {moved / ns:6.0f} GB/s"
                note = prepared[label].note[:60]
                print(f"{size:32} {dtype:5} {label:31} {rate} {ratio} {note}", flush=True)
            del prepared, ready
            torch.cuda.empty_cache()
    return 0


def _medians(clock: Clock, ready: dict[str, Prepared]) -> dict[str, float]:
    times: dict[str, list[int]] = {label: [] for label in ready}
    for _ in range(ROUNDS):
        for label, one in ready.items():
            (sample,) = clock.sample(one, lambda: None, 1)
            times[label].append(sample.time_ns)
    return {label: median(found) for label, found in times.items()}


def _prepared(
    family: str, problem: Problem, only: str | None = None
) -> Iterator[tuple[str, Prepared]]:
    """Every version that solves this problem, warm."""
    for version in load_family(family).versions:
        if only not in (None, version.name):
            continue
        try:
            prepared = version.prepare(problem)
        except UnsupportedError:
            continue
        # A version that fails in any way must not hide the others.
        except Exception as error:
            print(f"{version.label} FAILED: {type(error).__name__}: {str(error)[:200]}")
            continue
        prepared.call()
        yield version.label, prepared


def call_once(file: Path, families: list[str]) -> int:
    """For ncu: --profile-from-start off."""
    runtime = torch.cuda.cudart()
    flushing = EventClock(None)
    expected = []
    for family in families:
        for size, dtype in COUNTED[family]:
            problem = load_family(family).problem(size, dtype, DEVICE)
            work = problem.work()
            for label, prepared in _prepared(family, problem):
                flushing.flush()
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
            torch.cuda.empty_cache()
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
