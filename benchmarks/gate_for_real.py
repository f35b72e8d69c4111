"""Real gates of benchmarks/gate_suite: how often they raise a false alarm, and what they catch.

    OMP_NUM_THREADS=1 taskset -c 0 python benchmarks/gate_for_real.py --output OUT --alike 20
    OMP_NUM_THREADS=1 taskset -c 1 python benchmarks/gate_for_real.py --output OUT2 --injected 10
    python benchmarks/gate_for_real.py --table OUT OUT2

A gate here is what `gpuprof gate` runs: pairs of fresh processes, each with the ten benchmarks,
until the rule has decided. `--alike` gates compare the suite with itself; `--injected` gates make
one benchmark slower by --share, another one each time. Every gate's result stays in its folder.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec

from gpuprof.profiler.configuration.targets import Target
from gpuprof.profiler.gate.engine import GatePlan, run_gate
from gpuprof.profiler.gate.sides import SideProgram
from gpuprof.roofline.gate.result import GATE_FILE, GateResult
from gpuprof.roofline.gate.rule import RuleSettings
from gpuprof.roofline.gate.series import Side
from gpuprof.roofline.gate.suite import Rules

SUITE = Path(__file__).parent / "gate_suite"
# The benchmarks whose injection adds calls of the operator that they measure, by that operator.
OPERATORS = {
    "matmul": "aten::mm",
    "attention": "aten::_scaled_dot_product_flash_attention_for_cpu",
    "layer_norm": "aten::native_layer_norm",
    "softmax": "aten::_softmax",
    "convolution": "aten::mkldnn_convolution",
    "embedding": "aten::index_select",
    "reduction": "aten::sum",
    "cumulative_sum": "aten::cumsum",
    "small_layers": "aten::mm",
}


def program(side: Side, inject: str) -> SideProgram:
    """One side: the suite, with one benchmark made slower where `inject` says so."""
    arguments = ("--inject", inject) if inject else ()
    target = Target(name="suite", pytest=("test_suite.py",), arguments=arguments, profiled=1)
    return SideProgram(side, side, SUITE, (target,), sys.executable)


def gate(folder: Path, inject: str) -> GateResult:
    """Run one gate and store its result."""
    folder.mkdir(parents=True)
    plan = GatePlan(
        base=program("A", ""),
        head=program("B", inject),
        rules=Rules(RuleSettings()),
        output=folder / "processes",
    )
    result = run_gate(plan)
    (folder / GATE_FILE).write_bytes(msgspec.json.encode(result))
    return result


def timed_regressions(result: GateResult) -> list[str]:
    """Benchmarks whose time regressed."""
    return [
        j.benchmark for j in result.judgements if j.verdict == "REGRESSED" and j.level == "error"
    ]


def line(folder: Path, result: GateResult) -> str:
    """One gate in one line."""
    name = folder.name.partition("-")[2]
    verdicts = Counter(j.verdict for j in result.judgements if j.metric.name == "time")
    counted = ", ".join(f"{count} {verdict.lower()}" for verdict, count in verdicts.items())
    pairs = max((j.pairs for j in result.judgements), default=0)
    text = f"{folder.name:24} exit {result.exit_code}  {counted}; {pairs} pairs"
    found = [e for e in result.explanations if e.benchmark.endswith(f".test_{name}")]
    if found and found[0].culprits:
        first = found[0].culprits[0]
        text += f"; first: {first.name} ({first.op})"
    return f"{text}; {result.seconds:.0f} s"


def table(folders: Iterable[Path]) -> None:
    """Print what the gates in `folders` said, and the sums."""
    alike = alarms = injected = caught = culprits = 0
    for folder in sorted(path.parent for parent in folders for path in parent.glob("*/gate.json")):
        result = msgspec.json.decode((folder / GATE_FILE).read_bytes(), type=GateResult)
        print(line(folder, result))
        kind, _, name = folder.name.partition("-")
        regressed = timed_regressions(result)
        if kind == "alike":
            alike += 1
            alarms += bool(regressed)
            continue
        injected += 1
        own = [b for b in regressed if b.endswith(f".test_{name}")]
        caught += bool(own)
        for explanation in result.explanations:
            if own and explanation.benchmark == own[0]:
                first = explanation.culprits[0]
                culprits += OPERATORS[name] in (first.op, first.name)
    print(f"\n{alarms} of {alike} gates of the suite against itself raised an alarm")
    print(f"{caught} of {injected} injections caught, the culprit first in {culprits}")


def main() -> None:
    """Run gates, or print the table of those that ran."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--alike", type=int, default=0, metavar="N")
    parser.add_argument("--injected", type=int, default=0, metavar="N")
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--table", type=Path, nargs="+", default=())
    arguments = parser.parse_args()
    if arguments.table:
        table(arguments.table)
        return
    names = list(OPERATORS)
    jobs = [(f"alike-{i:03d}", "") for i in range(arguments.alike)]
    for i in range(arguments.injected):
        name = names[i % len(names)]
        jobs.append((f"injected{i:03d}-{name}", f"{name}={arguments.share}"))
    for folder, inject in jobs:
        result = gate(arguments.output / folder, inject)
        print(line(arguments.output / folder, result), flush=True)


if __name__ == "__main__":
    main()
