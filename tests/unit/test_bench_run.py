"""Running versions: wrong ones and broken ones are rows without a time, the others go on."""

import sys
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType

import pytest
import torch

from gpuprof.reference_kernels.benching.coordination import Alone
from gpuprof.reference_kernels.benching.library_warnings import collecting_warnings
from gpuprof.reference_kernels.benching.run import BenchOptions, BenchPlan, make_plans, run_plan
from gpuprof.reference_kernels.benching.timing import HostClock
from gpuprof.reference_kernels.families import Family, UnknownNameError, load_family, select
from gpuprof.reference_kernels.stream.problem import Stream
from gpuprof.reference_kernels.suite import Prepared, Problem, UnsupportedError, Version
from gpuprof.roofline.bench.results import CaseResult, Skipped
from gpuprof.roofline.cost_models.cost import Flops

CPU = torch.device("cpu")
Prepare = Callable[[Problem], Prepared]


def options(*, timed: bool = True) -> BenchOptions:
    return BenchOptions(CPU, 5, 0.02, HostClock() if timed else None, Alone())


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[CaseResult | Skipped]]:
    """Run made-up versions of a copy of 4 KiB, given by name and `prepare`."""

    def run(*, timed: bool = True, **prepares: Prepare) -> list[CaseResult | Skipped]:
        versions = []
        for name, prepare in prepares.items():
            one = Version("stream", name, "", ("fp32",), ("cpu",))
            module = ModuleType(one.module)
            module.prepare = prepare  # type: ignore[attr-defined]
            monkeypatch.setitem(sys.modules, one.module, module)
            versions.append(one)
        plan = BenchPlan(Family("stream", Stream, tuple(versions)), "copy:4KiB", "fp32")
        return list(run_plan(plan, options(timed=timed)))

    return run


def copied(problem: Problem) -> tuple[torch.Tensor, torch.Tensor]:
    assert isinstance(problem, Stream)
    return problem.a, torch.empty_like(problem.a)


def right(problem: Problem) -> Prepared:
    source, out = copied(problem)
    return Prepared(lambda: out.copy_(source), (out,))


def incomplete(problem: Problem) -> Prepared:
    source, out = copied(problem)
    return Prepared(lambda: out[:-1].copy_(source[:-1]), (out,))


def inexact(problem: Problem) -> Prepared:
    source, out = copied(problem)
    return Prepared(lambda: out.copy_(source * 1.25), (out,))


def spoiling(problem: Problem) -> Prepared:
    source, out = copied(problem)

    def call() -> None:
        out.copy_(source)
        source.zero_()

    return Prepared(call, (out,))


def broken(problem: Problem) -> Prepared:
    raise RuntimeError("no such tile\nand much more")


def unable(problem: Problem) -> Prepared:
    raise UnsupportedError("not for copies")


def test_a_right_version_is_timed(bench: Callable[..., list[CaseResult | Skipped]]) -> None:
    (result,) = bench(right=right)
    assert isinstance(result, CaseResult)
    assert result.error is None
    assert result.relative_error == 0.0
    assert result.median_ns is not None
    assert len(result.samples_ns) >= 10
    assert (result.bytes_read, result.bytes_written, result.flops) == (4096, 4096, ())


@pytest.mark.parametrize("prepare", [incomplete, inexact, spoiling])
def test_a_wrong_version_is_an_error_and_has_no_time(
    bench: Callable[..., list[CaseResult | Skipped]], prepare: Prepare
) -> None:
    (result,) = bench(wrong=prepare)
    assert isinstance(result, CaseResult)
    assert (result.error or "").startswith("wrong: relative error")
    assert result.median_ns is None
    assert result.samples_ns == ()


def test_a_broken_version_does_not_stop_the_others(
    bench: Callable[..., list[CaseResult | Skipped]],
) -> None:
    failed, skipped, fine = bench(broken=broken, unable=unable, right=right)
    assert isinstance(failed, CaseResult)
    assert failed.error == "RuntimeError: no such tile"
    assert skipped == Skipped("stream/unable", "copy:4KiB", "fp32", "not for copies")
    assert isinstance(fine, CaseResult)
    assert fine.error is None


def test_without_a_clock_results_are_only_checked(
    bench: Callable[..., list[CaseResult | Skipped]],
) -> None:
    (result,) = bench(timed=False, right=right)
    assert isinstance(result, CaseResult)
    assert (result.relative_error, result.median_ns) == (0.0, None)


def test_what_a_version_says_of_its_work_is_kept(
    bench: Callable[..., list[CaseResult | Skipped]],
) -> None:
    executed = (Flops("vector", "fp32", 7),)

    def prepare(problem: Problem) -> Prepared:
        source, out = copied(problem)
        return Prepared(
            lambda: out.copy_(source),
            (out,),
            executed_flops=executed,
            expected_bytes_read=9000,
            note="chosen",
        )

    (result,) = bench(one=prepare)
    assert isinstance(result, CaseResult)
    assert (result.executed_flops, result.expected_bytes_read) == (executed, 9000)
    assert (result.expected_bytes_written, result.note) == (None, "chosen")
    assert result.done_flops == executed


def test_where_another_rank_is_not_ready_nothing_is_called() -> None:
    class OtherFails(Alone):
        def largest(self, values: Sequence[float]) -> list[float]:
            return [1.0 for _ in values]

    chosen = BenchOptions(CPU, 5, 0.02, HostClock(), OtherFails())
    (stream,) = select(["stream/torch"])
    (result,) = run_plan(BenchPlan(stream, "copy:4KiB", "fp32"), chosen)
    assert isinstance(result, CaseResult)
    assert result.error == "another rank could not make it ready"
    assert result.relative_error is None


def test_plans_are_sizes_times_dtypes_of_each_family() -> None:
    plans = make_plans(select(["stream"]), "cpu", ("copy:1KiB", "triad:1KiB"), ("fp32", "bf16"))
    assert [(plan.size, plan.dtype) for plan in plans] == [
        ("copy:1KiB", "fp32"),
        ("copy:1KiB", "bf16"),
        ("triad:1KiB", "fp32"),
        ("triad:1KiB", "bf16"),
    ]
    defaults = load_family("stream").problem.default_sizes["cpu"]
    assert [plan.size for plan in make_plans(select(["stream"]), "cpu")] == list(defaults)


def test_sizes_of_several_families_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="sizes are of one family"):
        make_plans(select(["stream", "gemm"]), "cpu", ("copy:1KiB",))


def test_an_unknown_dtype_and_size_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="no dtype 'fp17'"):
        make_plans(select(["stream"]), "cpu", (), ("fp17",))
    (plan,) = make_plans(select(["stream"]), "cpu", ("copy:much",), ("fp32",))
    with pytest.raises(UnknownNameError, match="no number of bytes"):
        list(run_plan(plan, options()))


def test_what_libraries_warn_of_is_kept_and_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with collecting_warnings() as sentences:
        for _ in range(2):
            warnings.warn("TF32 is off\x1b[31m\nmore of it", UserWarning, stacklevel=1)
        warnings.warn("x" * 1000, DeprecationWarning, stacklevel=1)
    first, second = sentences
    assert first.startswith("UserWarning at test_bench_run.py:")
    assert first.endswith("TF32 is off\\x1b[31m")
    assert len(second) == 300
    assert capsys.readouterr() == ("", "")
