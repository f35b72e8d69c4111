"""The table of benchmarks/performance.py and the page that keeps it."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from gpuprof.collectors.manifest import Fingerprint
from gpuprof.roofline.bench.results import BenchReport, CaseResult, Method
from gpuprof.roofline.cost_models.cost import Flops

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def performance(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("scipy")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location("performance", BENCHMARKS / "performance.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "performance", module)
    spec.loader.exec_module(module)
    return module


def case(version: str, size: str, median_us: int | None, error: str | None = None) -> CaseResult:
    return CaseResult(
        family="gemm",
        version=version,
        size=size,
        dtype="bf16",
        flops=(Flops("matmul", "bf16", 10**9),),
        bytes_read=2_000_000,
        bytes_written=1_000_000,
        median_ns=None if median_us is None else median_us * 1000,
        error=error,
    )


def report(*cases: CaseResult) -> BenchReport:
    return BenchReport(
        tool_version="0",
        created_ns=0,
        device=None,
        fingerprint=Fingerprint(),
        calibration=None,
        method=Method(
            clock="CUDA events",
            flushed_bytes=None,
            confidence=0.95,
            precision=0.005,
            budget_s=1.0,
            seed=0,
        ),
        cases=cases,
    )


def test_the_best_version_counts_beside_the_best_library(performance: ModuleType) -> None:
    row = performance.KernelRow(
        what="GEMM", family="gemm", dtype="bf16", sizes=("1", "2", "3"), beside="library",
        wanted=0.99, least=0.95,
    )  # fmt: skip
    found = list(
        performance.kernel_rows(
            row,
            report(
                *(case("cublas", "1", 100), case("torch-gemv", "1", 90), case("triton", "1", 100)),
                *(case("cublas", "2", 100), case("triton", "2", 101), case("wgmma", "2", 98)),
                # A wrong version has no time.
                *(
                    case("cublas", "3", 100),
                    case("triton", "3", None, "wrong"),
                    case("b", "3", 104),
                ),
            ),
            copy_bytes_per_s=0.0,
        )
    )
    assert [one.ratio for one in found] == ["90.0%", "102.0%", "96.2%", "96.2%"]
    assert [one.wanted for one in found] == ["95%", "95%", "95%", "99%"]
    assert [one.reached for one in found] == [False, True, True, False]
    assert found[1].own.startswith("wgmma, 98.0")


def test_versions_and_copies(performance: ModuleType) -> None:
    row = performance.KernelRow(
        what="softmax", family="softmax", dtype="bf16", sizes=("1",), beside="copy", wanted=0.98,
        versions=("triton",),
    )  # fmt: skip
    assert row.labels == ["softmax/torch", "softmax/triton"]
    cases = report(case("triton", "1", 2), case("torch", "1", 3))
    # 3 MB in 2 us, where a copy has 2 TB/s.
    (found,) = performance.kernel_rows(row, cases, copy_bytes_per_s=2e12)
    assert (found.ratio, found.reached) == ("75.0%", False)


def test_the_table_of_kernels_can_be_run(performance: ModuleType) -> None:
    table = msgspec.toml.decode(performance.TABLE.read_bytes(), type=performance.Kernels)
    (gemm,) = (row for row in table.kernel if row.what == "GEMM bf16")
    assert len(gemm.sizes) == 20
    from gpuprof.reference_kernels.families import load_family

    for row in table.kernel:
        names = {version.name for version in load_family(row.family).versions}
        assert set(row.versions) <= names, row.what


def test_a_machine_has_one_section(performance: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text("# Performance\n\nText.\n\n## GPU\n\nold\n\n## CPU\n\nstays\n")
    row = performance.Row.of_share("GEMM", "a", "b", 0.991, 0.99)
    performance.put(page, "GPU", performance.section("GPU", [row]))
    text = page.read_text()
    assert text.startswith("# Performance\n\nText.\n\n## CPU\n\nstays\n\n## GPU\n\n")
    assert "old" not in text
    assert text.endswith("| GEMM | a | b | 99.1% | 99% | yes |\n")
