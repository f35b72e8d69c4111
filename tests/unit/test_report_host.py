"""What reports say of the host."""

import msgspec

from gpuprof.collectors.manifest import Compilations, GraphBreak, NotCompiled, Recompiled
from gpuprof.reports.blocks import Block, Details, Facts, Paragraph, Table
from gpuprof.reports.sections import host as section
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.host_figures import (
    CollectedGarbage,
    HostCall,
    HostFigures,
    LaunchQueue,
    LoaderWait,
)
from gpuprof.roofline.idle_figures import IdleCause, IdleTime


def facts(blocks: "tuple[Block, ...] | list[Block]") -> dict[str, str]:
    """Label to value and note."""
    return {
        fact.label: f"{fact.value}: {fact.note}"
        for block in blocks
        if isinstance(block, Facts)
        for fact in block.facts
    }


def summary(analysis: Analysis, host: HostFigures | None) -> dict[str, str]:
    with_host = msgspec.structs.replace(analysis, host=host)
    return facts(list(section.SECTION.summary(with_host)))


def test_a_host_that_costs_nothing_is_no_line_of_the_summary(training_analysis: Analysis) -> None:
    quiet = HostFigures(
        calls=(HostCall(name="aten::mm", kind="operator", calls=3, total_ns=30, self_ns=20),),
        launches_per_s=1e5,
        queue=LaunchQueue(
            device=0, median=40, maximum=90, empty_fraction=0.0, median_delay_ns=1_000_000
        ),
        garbage=CollectedGarbage(timed_step_ns=1000),
        loaders=(LoaderWait(workers=4, pinned=True, batches=3, wait_ns=900, cause="transform"),),
        compilations=Compilations(compiled=2, recompiled=0, compiling_ns=10**9),
    )
    assert summary(training_analysis, quiet) == {}
    assert summary(training_analysis, None) == {}
    shown = list(section.SECTION.body(msgspec.structs.replace(training_analysis, host=quiet)))
    assert set(facts(shown)) == {"Host", "Garbage", "Loader"}
    assert facts(shown)["Host"] == (
        "100 k launches/s: the launch queue is empty 0.0% of the time, median 40, at most 90"
    )
    assert any(isinstance(block, Table) for block in shown)


def test_what_costs_something_is_said_with_where_it_comes_from(training_analysis: Analysis) -> None:
    step_ns = training_analysis.steps.length_ns
    assert step_ns is not None
    told = summary(
        training_analysis,
        HostFigures(
            garbage=CollectedGarbage(timed_step_ns=step_ns // 4, collections=(6, 0, 3)),
            loaders=(
                LoaderWait(
                    workers=0,
                    pinned=False,
                    batches=3,
                    wait_ns=3 * step_ns,
                    cause="reading",
                    observed_ns=3 * step_ns,
                    cpu_ns=step_ns,
                    run_delay_ns=0,
                    storage_bytes=5_000_000,
                ),
            ),
            compilations=Compilations(
                compiled=64,
                recompiled=38,
                compiling_ns=10**9,
                recompilations=(
                    Recompiled(
                        function="forward", file="/a/b/model.py", line=7, guard="n == 3", times=30
                    ),
                ),
                breaks=(GraphBreak(reason="print", file="C:\\x\\train.py", line=12, times=2),),
                given_up=(
                    NotCompiled(function="loss", reason="loop", file=None, line=None, times=1),
                ),
                at_least=True,
            ),
        ),
    )
    assert told["Garbage"].startswith("3.23 ms a step: 25.0% of it")
    assert "2, 0, 1 by generation" in told["Garbage"]
    assert "1 batch; no workers" in told["Loader"]
    assert "reading from a storage device; it computes 33.3% of the time" in told["Loader"]
    assert "5.00 MB from a storage device, batches in pageable memory" in told["Loader"]
    assert told["Recompiled"] == ("at least 38 times: forward (model.py:7) 30 times because n == 3")
    assert told["Graph breaks"] == "2: train.py:12: print"
    assert told["Not compiled"].startswith("loss: ")


def test_recompilations_of_a_program_that_has_settled_are_in_the_report_alone(
    training_analysis: Analysis,
) -> None:
    again = Recompiled(function="f", file="a.py", line=1, guard="n == 3", times=2)
    settled = Compilations(compiled=4, recompiled=2, compiling_ns=1, recompilations=(again,))
    assert summary(training_analysis, HostFigures(compilations=settled)) == {}
    going_on = HostFigures(compilations=settled, compiling_ns=3_000_000)
    told = summary(training_analysis, going_on)
    assert told["Compiling"].startswith("1.00 ms a step")
    assert told["Recompiled"].startswith("2 times: f (a.py:1) 2 times because n == 3")
    body = section.SECTION.body(
        msgspec.structs.replace(training_analysis, host=HostFigures(compilations=settled))
    )
    (table,) = [block for block in body if isinstance(block, Table)]
    assert table.rows == (("compiled again", "f", "a.py:1", "n == 3", "2"),)


def test_what_the_device_waits_for_is_told_once(training_analysis: Analysis) -> None:
    step_ns = training_analysis.steps.length_ns
    assert step_ns is not None
    assert training_analysis.split is not None
    waits = IdleTime(
        nanoseconds=step_ns,
        profiled_ns=step_ns,
        basis="timed",
        causes=(IdleCause(kind="data loader", nanoseconds=step_ns, profiled_ns=step_ns),),
    )
    loader = LoaderWait(workers=2, pinned=True, batches=3, wait_ns=3 * step_ns, cause="transform")
    host = HostFigures(loaders=(loader,))
    assert set(summary(training_analysis, host)) == {"Loader"}
    told = msgspec.structs.replace(training_analysis, idle=waits)
    assert summary(told, host) == {}


def test_calls_are_means_of_a_step_and_the_rest_is_said(training_analysis: Analysis) -> None:
    calls = tuple(
        HostCall(name=f"aten::op{n}", kind="operator", calls=3, total_ns=600, self_ns=300)
        for n in range(60)
    )
    host = HostFigures(calls=calls, other_self_ns=600)
    blocks = list(section.SECTION.body(msgspec.structs.replace(training_analysis, host=host)))
    (table,) = [block for block in blocks if isinstance(block, Table)]
    (folded,) = [block for block in blocks if isinstance(block, Details)]
    (others,) = [block for block in folded.blocks if isinstance(block, Table)]
    assert len(table.rows) + len(others.rows) == 40
    assert folded.summary == f"{len(others.rows)} more calls"
    assert table.rows[0][:5] == ("aten::op0", "operator", "1", "100 ns", "200 ns")
    said = [block.text for block in blocks if isinstance(block, Paragraph)]
    # 20 calls of 100 ns, and 200 ns.
    assert said[-1] == "All other calls: 2.20 µs themselves."
