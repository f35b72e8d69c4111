"""How much of the device time of recordings and public traces has a kernel name that is decoded.

    python benchmarks/kernel_names.py [--undecoded N] TRACE ...

Printed for each trace: the kernels' time, the share of it whose names say who wrote the kernel and
what it does, and of matrix products, convolutions and attention the shares whose names say the
precision and the tile.
"""

import argparse
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import polars as pl

from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.opening import open_traces
from gpuprof.roofline.kernel_names.decode import decode

PRODUCTS = ("gemm", "convolution", "attention")


def times_by_name(trace: Path) -> Counter[str]:
    """Nanoseconds by kernel name."""
    kernels = open_traces([trace]).kernels.filter(pl.col("kind").is_in(["kernel", "collective"]))
    times: Counter[str] = Counter()
    for name, start, end in kernels.select("name", "start_ns", "end_ns").iter_rows():
        times[name] += end - start
    return times


def row(title: str, times: Counter[str]) -> str:
    """One line of the table."""
    decoded = {name: decode(name) for name in times}
    products = [name for name, told in decoded.items() if told and told.function in PRODUCTS]

    def share(names: Iterable[str], whole: Iterable[str]) -> str:
        total = sum(times[name] for name in whole)
        return f"{sum(times[name] for name in names) / total:8.1%}" if total else f"{'-':>8}"

    known = [name for name, told in decoded.items() if told]
    precise = [name for name in products if (told := decoded[name]) and told.precision]
    tiled = [name for name in products if (told := decoded[name]) and told.tile]
    milliseconds = times.total() / 1e6
    columns = (share(known, times), share(precise, products), share(tiled, products))
    return f"{title[:44]:44} {len(times):6} {milliseconds:10.2f} {' '.join(columns)}"


def main() -> None:
    """Print a row for each trace and one for all, then the largest names that are unknown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--undecoded", type=int, default=10, help="unknown names to print")
    arguments = parser.parse_args()
    print(f"{'trace':44} {'names':>6} {'ms':>10} {'decoded':>8} {'precision':>8} {'tile':>7}")
    everything: Counter[str] = Counter()
    for trace in arguments.traces:
        try:
            times = times_by_name(trace)
        except CaptureError as error:
            print(f"{trace.name[:44]:44} {error.__class__.__name__}")
            continue
        if times:
            print(row(trace.name, times))
        everything += times
    print(row("all", everything))
    unknown = Counter({name: ns for name, ns in everything.items() if decode(name) is None})
    for name, nanoseconds in unknown.most_common(arguments.undecoded):
        print(f"{nanoseconds / 1e6:10.3f} ms  {name[:120]}")


if __name__ == "__main__":
    main()
