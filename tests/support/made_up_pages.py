"""What the tests of pages show of gates, histories and benchmarks, of figures nobody measured."""

from collections.abc import Sequence

from gpuprof.collectors.manifest import Device, Fingerprint
from gpuprof.roofline.bench.results import Method
from gpuprof.roofline.bench.sizes import CallCost, SizedTime, SizesReport
from gpuprof.roofline.gate.history import HistorySeries, Point
from gpuprof.roofline.gate.judge import judge
from gpuprof.roofline.gate.result import Explanation, GateResult, SideInfo
from gpuprof.roofline.gate.rule import RuleSettings
from gpuprof.roofline.gate.series import ProcessRun, Series, Side

_SIDES: tuple[Side, Side] = ("A", "B")


def gate_result(slower: dict[str, float], explanations: Sequence[Explanation] = ()) -> GateResult:
    """Five pairs of each benchmark, whose head takes `slower` times as long."""
    suite = [
        Series(
            benchmark=name,
            runs=tuple(
                ProcessRun(side=side, pair=pair, samples=(1e6 * factor * (1 + pair / 1e3),) * 9)
                for pair in range(5)
                for side, factor in zip(_SIDES, (1.0, times), strict=True)
            ),
        )
        for name, times in slower.items()
    ]
    info = SideInfo(label="x")
    return GateResult(
        tool_version="1",
        created_ns=0,
        base=info,
        head=info,
        settings=RuleSettings(),
        judgements=judge(suite, give_up=True),
        explanations=tuple(explanations),
    )


def history_series(benchmark: str) -> HistorySeries:
    """Eight days, from the fifth on a third slower."""
    return HistorySeries(
        benchmark=benchmark,
        metric="time",
        unit="ns",
        fingerprint="f",
        device="H100",
        points=tuple(
            Point(
                measured_ns=(1767000000 + index * 86400) * 10**9,
                commit="abc",
                value=(3e6, 4e6)[index > 3],
                low=2.9e6,
                high=4.1e6,
                processes=5,
            )
            for index in range(8)
        ),
    )


def sizes_report(functions: Sequence[str] = ("matmul", "by_rows")) -> SizesReport:
    """Three sizes of which a call takes ten times as long each, and the others' twice that."""
    times = tuple(
        SizedTime(
            function=name,
            size=str(10**number),
            number=10.0**number,
            median_ns=(index + 1) * 10 ** (number + 2),
            lower_ns=(index + 1) * 9 * 10 ** (number + 1),
            upper_ns=(index + 1) * 11 * 10 ** (number + 1),
            samples_ns=(10 ** (number + 2),) * 10,
            cost=CallCost(
                flops=2 * 10 ** (3 * number),
                flops_from="operators",
                bytes_moved=12 * 10 ** (2 * number),
                bytes_from="operators",
            ),
        )
        for number in (1, 2, 3)
        for index, name in enumerate(functions)
    )
    return SizesReport(
        tool_version="1",
        created_ns=0,
        title="mine.py",
        device=Device(index=0, kind="cuda", name="H100"),
        fingerprint=Fingerprint(torch="2.9"),
        method=Method(
            clock="CUDA events",
            flushed_bytes=2**20,
            confidence=0.95,
            precision=0.005,
            budget_s=1.0,
            seed=0,
        ),
        functions=tuple(functions),
        times=times,
    )
