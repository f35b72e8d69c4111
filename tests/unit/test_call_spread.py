"""How long single calls took: all launches of a kernel, or of an operator, in one of them."""

import statistics

import numpy as np
import pytest
from capture_builder import CaptureBuilder

from gpuprof.reports.point_rows import point_figures
from gpuprof.roofline.analyze import analyze

# Two kernels of each call, in ns; the second one is launched twice.
CALLS = ((40, 7, 8), (52, 9, 9), (44, 7, 7), (90, 8, 12), (41, 9, 6))


def test_calls_have_the_spread_of_all_that_each_launched(build: CaptureBuilder) -> None:
    for number, (first, *parts) in enumerate(CALLS):
        start = 1000 * number
        build.mm(start, start + 50)
        build.kernel(start + 10, start + 100, start + 100 + first, "gemm")
        for index, part in enumerate(parts):
            at = start + 300 + 50 * index
            build.kernel(start + 20 + index, at, at + part, "splitKreduce_kernel")
    analysis = analyze(build.build())
    (op,) = analysis.ops
    spreads = {point.name: point.spread for point in (*analysis.kernels, op)}
    for name, lengths in (
        ("gemm", [call[0] for call in CALLS]),
        ("splitKreduce_kernel", [sum(call[1:]) for call in CALLS]),
        ("aten::mm", [sum(call) for call in CALLS]),
    ):
        found = spreads[name]
        assert found is not None
        assert (found.calls, found.shortest_ns, found.longest_ns) == (
            len(CALLS),
            min(lengths),
            max(lengths),
        )
        assert found.median_ns == statistics.median(lengths)
        quartiles = np.percentile(lengths, [25, 75])
        assert [found.lower_quartile_ns, found.upper_quartile_ns] == quartiles.tolist()
    (fact,) = (fact for fact in point_figures(op, 1) if fact.label == "One call")
    assert fact.value == f"{min(map(sum, CALLS)):.1f} ns to {max(map(sum, CALLS))} ns"
    assert fact.note.startswith("of 5 profiled calls; quartiles ")


def test_one_call_has_no_spread(build: CaptureBuilder) -> None:
    build.mm(0, 50)
    build.kernel(10, 100, 140, "gemm")
    analysis = analyze(build.build())
    assert [point.spread for point in (*analysis.kernels, *analysis.ops)] == [None, None]
    assert all(fact.label != "One call" for fact in point_figures(analysis.ops[0], 1))


def test_what_no_operator_launched_is_a_call_each(build: CaptureBuilder) -> None:
    for number, length in enumerate((5, 9, 7)):
        build.kernel(10 + number, 100 * number, 100 * number + length, "alone")
    (kernel,) = analyze(build.build()).kernels
    assert kernel.spread is not None
    assert (kernel.spread.calls, kernel.spread.median_ns) == (3, 7)
    assert kernel.device_ns == pytest.approx(21)
