"""Compares op-level FLOPs with TraceLens, operator call by operator call.

    python benchmarks/compare_with_tracelens.py [--tracelens-python PYTHON] TRACE...

PYTHON is an interpreter with TraceLens (AMD-AGI/TraceLens 0.1.0), best in an environment of its
own. Each distinct call in a trace (operator, shapes, dtypes, strides, scalars) that has a
performance model there is asked for its FLOPs there and here. A row counts the distinct calls of
an operator, those with equal FLOPs, and those that only one side counts; of the first that
differ it shows the call and both counts. Why they differ: docs/numbers.md.
"""

import argparse
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from gpuprof.roofline.cost_models import cost_of, is_modelled
from gpuprof.roofline.cost_models.call import parse_call
from gpuprof.roofline.cost_models.cost import Flops

_PROGRAM = """
import gzip, json, math, sys
from TraceLens.PerfModel.torch_op_mapping import resolve_perf_model_class
path = sys.argv[1]
with (gzip.open if path.endswith(".gz") else open)(path, "rt", errors="replace") as file:
    events = json.loads(file.read(), strict=False)["traceEvents"]
keys = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
seen = set()
for event in events:
    arguments = event.get("args", {})
    if event.get("cat") != "cpu_op" or "Input Dims" not in arguments:
        continue
    texts = [json.dumps(arguments.get(key)) for key in keys]
    call = (event["name"], *texts)
    if call in seen:
        continue
    seen.add(call)
    model = resolve_perf_model_class(event["name"])
    if model is None:
        continue
    try:
        flops = model(event=event, arch=None, python_path=None).flops()
        flops = None if flops is None or math.isnan(flops) else round(flops)
        error = ""
    except Exception as raised:
        flops, error = None, f"{type(raised).__name__}: {raised}"
    print("RESULT", json.dumps([event["name"], *texts, flops, error]))
"""
_RESULT = "RESULT "


class Theirs(msgspec.Struct, array_like=True):
    """A call and its FLOPs by TraceLens, None with the reason where it has none."""

    name: str
    input_dims: str
    input_types: str
    input_strides: str
    concrete_inputs: str
    flops: int | None
    error: str


@dataclass
class Row:
    """What came out for the calls of one operator."""

    calls: int = 0
    equal: int = 0
    only_ours: int = 0
    only_theirs: int = 0
    # Whether our model counts products or only vector operations.
    products: bool = False
    different: list[tuple[Theirs, int]] = field(default_factory=list)
    errors: set[str] = field(default_factory=set)


def their_calls(python: str, trace: Path) -> list[Theirs]:
    """The distinct calls of `trace` that TraceLens has a model of."""
    finished = subprocess.run(
        [python, "-c", _PROGRAM, str(trace.absolute())], capture_output=True, text=True, check=True
    )
    return [
        msgspec.json.decode(line.removeprefix(_RESULT), type=Theirs)
        for line in finished.stdout.splitlines()
        if line.startswith(_RESULT)
    ]


def our_flops(theirs: Theirs) -> tuple[Flops, ...] | None:
    """The operations that our model counts, None where it has none."""
    call = parse_call(
        theirs.name,
        theirs.input_dims,
        theirs.input_types,
        theirs.input_strides,
        theirs.concrete_inputs,
    )
    cost = None if call is None else cost_of(call)
    return None if cost is None else cost.flops


def compare(python: str, traces: list[Path]) -> dict[str, Row]:
    """One row for each operator, over all traces."""
    rows: dict[str, Row] = defaultdict(Row)
    for trace in traces:
        for theirs in their_calls(python, trace):
            row = rows[theirs.name]
            row.calls += 1
            parts = our_flops(theirs) if is_modelled(theirs.name) else None
            ours = None if parts is None else sum(part.count for part in parts)
            row.products |= any(part.kind == "matmul" for part in parts or ())
            if theirs.error:
                row.errors.add(theirs.error)
            if ours is None or theirs.flops is None:
                row.only_ours += ours is not None
                row.only_theirs += theirs.flops is not None
            elif ours == theirs.flops:
                row.equal += 1
            else:
                row.different.append((theirs, ours))
    return dict(sorted(rows.items()))


def main() -> int:
    """Print one row an operator."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE")
    parser.add_argument("--tracelens-python", default=sys.executable, metavar="PYTHON")
    arguments = parser.parse_args()
    probe = subprocess.run([arguments.tracelens_python, "-c", "import TraceLens"], check=False)
    if probe.returncode != 0:
        print(
            f"skipped: {arguments.tracelens_python} has no TraceLens; make an environment with it "
            "and pass its --tracelens-python"
        )
        return 0
    columns = ("Operator", "Calls", "Equal", "Only ours", "Only theirs", "Differ", "Ours / theirs")
    rows = compare(arguments.tracelens_python, arguments.traces)
    for title, products in (("Products", True), ("Vector operations", False)):
        table = Table(*columns, "First that differs", title=title)
        chosen = {name: row for name, row in rows.items() if row.products == products}
        for name, row in chosen.items():
            counts = (row.calls, row.equal, row.only_ours, row.only_theirs, len(row.different))
            table.add_row(name, *map(str, counts), *differences(row))
        Console(width=200).print(table)
        equal = sum(row.equal for row in chosen.values())
        both = equal + sum(len(row.different) for row in chosen.values())
        print(f"{title}: {equal} of {both} calls that both count are equal")
    return 0


def differences(row: Row) -> tuple[str, str]:
    """The range of ours over theirs, and the first call that differs or failed."""
    if not row.different:
        return "", next(iter(row.errors), "")
    ratios = [ours / theirs.flops for theirs, ours in row.different if theirs.flops]
    theirs, ours = row.different[0]
    spread = f"{min(ratios):.4g} to {max(ratios):.4g}" if ratios else "theirs is 0"
    return spread, f"{theirs.input_dims} {theirs.concrete_inputs}: {ours:,} / {theirs.flops:,}"


if __name__ == "__main__":
    sys.exit(main())
