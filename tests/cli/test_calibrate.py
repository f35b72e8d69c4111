"""`gpuprof calibrate` as a process, and the cache it keeps."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from json_documents import read_answer
from rich.console import Console

from gpuprof.collectors.live.fingerprint import cpu_device
from gpuprof.collectors.manifest import Calibration, Device, LaunchCost, MeasuredCeiling
from gpuprof.profiler.machine import calibration_cache
from gpuprof.reports.json_answers.of_machines import DeviceCalibrations
from gpuprof.reports.machine.calibration import ceiling_table, remarks
from gpuprof.roofline.machine import quiet

CPU = Device(index=0, kind="cpu", name="A CPU (TM)", multiprocessors=4)
GPU = Device(index=0, kind="cuda", name="NVIDIA H100 80GB HBM3", uuid="GPU-1")


def gpuprof(*arguments: str, cache: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "gpuprof", "calibrate", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**environment, "COLUMNS": "100", "NO_COLOR": "1"},
    )


def calibration(device: Device, torch: str = "2.13.0", threads: int | None = 4) -> Calibration:
    ceilings = (
        MeasuredCeiling(
            kind="compute",
            name="GEMM bf16",
            rate=758e12,
            spread=0.004,
            repeats=7,
            precision="bf16",
            method="matrix product of 8192 x 8192, random data",
        ),
        MeasuredCeiling(
            kind="memory",
            name="DRAM copy",
            rate=2.98e12,
            spread=0.001,
            repeats=7,
            level="DRAM",
            method="one array read, one written",
        ),
    )
    return Calibration(
        device=device, torch=torch, threads=threads, measured_ns=1, ceilings=ceilings
    )


def test_the_cpu_is_measured_and_shown_or_refused(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    file = tmp_path / "calibrations.json"
    done = gpuprof("--device", "cpu", "--json", str(file), cache=tmp_path)
    assert read_answer(file.read_bytes())["schema"]["name"] == "calibrate"
    (found,) = msgspec.json.decode(file.read_bytes(), type=DeviceCalibrations).calibrations
    assert done.returncode == (1 if found.refused else 0), done.stderr
    assert found.device.kind == "cpu"
    names = {ceiling.name for ceiling in found.ceilings}
    assert names.isdisjoint(found.refused)
    assert {"GEMM fp32", "GEMM fp64", "DRAM in-place"} <= names | set(found.refused)
    assert all(c.rate > 1e6 and c.spread >= 0 and c.repeats > 1 for c in found.ceilings)
    said = " ".join(done.stdout.split())
    assert all(name in said for name in (*names, *found.refused))
    kept = not found.refused and (found.other_work or 0) <= 0.1
    assert ("Kept in" in said) is kept
    assert ("measure again when the machine is quiet" in said) is not kept


def test_what_is_known_is_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    known = calibration(cpu_device(), torch=str(torch.__version__), threads=torch.get_num_threads())
    assert calibration_cache.store(known) is not None
    file = tmp_path / "calibrations.json"
    done = gpuprof("--device", "cpu", "--json", str(file), cache=tmp_path)
    assert done.returncode == 0, done.stderr
    assert msgspec.json.decode(file.read_bytes(), type=DeviceCalibrations).calibrations == (known,)
    assert "Kept in" in done.stdout

    refused = gpuprof("--device", "cpu", "--json", str(file), cache=tmp_path)
    assert refused.returncode == 1
    assert "exists" in refused.stderr
    assert refused.stdout == ""


def fresh_calibration(device: Device, **changes: Any) -> Calibration:
    torch = pytest.importorskip("torch")
    base = calibration(device, torch=str(torch.__version__), threads=torch.get_num_threads())
    return msgspec.structs.replace(base, **changes)


def measured_now(
    monkeypatch: pytest.MonkeyPatch, fresh: Calibration, *, force: bool = False
) -> Calibration:
    from gpuprof.reference_kernels.calibration import measure as measuring

    monkeypatch.setattr(measuring, "calibrate", lambda device, progress: fresh)
    return calibration_cache.calibrate_cached(fresh.device, force=force)


@pytest.mark.parametrize(
    ("device", "changes", "kept"),
    [
        (CPU, {"other_work": 0.04}, True),
        (CPU, {"other_work": None}, True),
        (CPU, {"other_work": 0.55}, False),
        (CPU, {"other_work": 0.02, "refused": ("DRAM read",)}, False),
        (GPU, {"other_work": 0.0}, True),
        (GPU, {"other_work": 0.97}, False),
    ],
)
def test_figures_from_a_busy_machine_are_used_once_and_not_kept(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    device: Device,
    changes: dict[str, Any],
    kept: bool,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    fresh = fresh_calibration(device, **changes)
    assert measured_now(monkeypatch, fresh) == fresh
    found = calibration_cache.load_cached(device, fresh.torch, fresh.threads)
    assert found == (fresh if kept else None)
    sentences = quiet.busy_sentences(fresh)
    assert bool(sentences) is not kept
    assert all(name in sentences[0] for name in fresh.refused)


@pytest.mark.parametrize(("spread", "kept"), [(0.04, True), (0.6, False)])
def test_a_gpu_whose_repeats_differ_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spread: float, kept: bool
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    base = fresh_calibration(GPU)
    ceilings = tuple(msgspec.structs.replace(c, spread=spread) for c in base.ceilings)
    fresh = msgspec.structs.replace(base, ceilings=ceilings)
    measured_now(monkeypatch, fresh)
    assert (calibration_cache.load_cached(GPU, fresh.torch, fresh.threads) is None) is not kept


def with_rates(base: Calibration, when: int, product: float, copy: float) -> Calibration:
    ceilings = tuple(
        msgspec.structs.replace(ceiling, rate=rate, measured_ns=when)
        for ceiling, rate in zip(base.ceilings, (product, copy), strict=True)
    )
    return msgspec.structs.replace(base, ceilings=ceilings, measured_ns=when)


def test_a_lower_rate_of_a_cpu_never_replaces_a_higher_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    base = fresh_calibration(CPU)
    measured_now(monkeypatch, with_rates(base, 1, 196e9, 27e9))
    again = measured_now(monkeypatch, with_rates(base, 2, 168e9, 45e9), force=True)
    # Each rate has the time at which it was measured.
    assert [(c.rate, c.measured_ns) for c in again.ceilings] == [(196e9, 1), (45e9, 2)]
    assert calibration_cache.load_cached(CPU, base.torch, base.threads) == again
    # A busy machine's figures replace nothing, not even lower ones.
    crowded = msgspec.structs.replace(with_rates(base, 3, 500e9, 500e9), other_work=0.5)
    assert measured_now(monkeypatch, crowded, force=True) == crowded
    assert calibration_cache.load_cached(CPU, base.torch, base.threads) == again


def test_a_gpu_measured_again_has_the_new_rates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    base = fresh_calibration(GPU)
    measured_now(monkeypatch, with_rates(base, 1, 9e14, 3e12))
    again = measured_now(monkeypatch, with_rates(base, 2, 8e14, 4e12), force=True)
    assert [ceiling.rate for ceiling in again.ceilings] == [8e14, 4e12]


def test_a_link_with_slow_repeats_is_kept_for_its_rate_is_the_fastest() -> None:
    link = MeasuredCeiling(
        kind="link", name="PCIe h2d", rate=54e9, spread=0.6, repeats=7, level="PCIe h2d"
    )
    base = calibration(GPU, threads=None)
    assert (
        quiet.why_not_kept(msgspec.structs.replace(base, ceilings=(*base.ceilings, link))) is None
    )


def test_a_device_that_is_not_there_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = gpuprof("--device", "cuda:7", cache=tmp_path)
    assert done.returncode == 2
    assert done.stderr.strip() == "gpuprof: --device cuda:7: this machine has cpu"


def test_a_stored_calibration_is_found_for_the_same_circumstances_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    stored = calibration(CPU)
    assert calibration_cache.store(stored) is not None
    assert calibration_cache.load_cached(CPU, "2.13.0", 4) == stored
    assert calibration_cache.load_cached(CPU, "2.12.0", 4) is None
    assert calibration_cache.load_cached(CPU, "2.13.0", 8) is None
    assert calibration_cache.load_cached(GPU, "2.13.0", 4) is None


def test_threads_do_not_matter_for_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    stored = calibration(GPU, threads=None)
    calibration_cache.store(stored)
    assert calibration_cache.load_cached(GPU, "2.13.0", 16) == stored


def test_a_damaged_cache_file_counts_as_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    file = calibration_cache.store(calibration(CPU))
    assert file is not None
    file.write_bytes(file.read_bytes()[:40])
    assert calibration_cache.load_cached(CPU, "2.13.0", 4) is None


def test_a_cache_that_cannot_be_written_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    occupied = tmp_path / "file"
    occupied.write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(occupied))
    assert calibration_cache.store(calibration(CPU)) is None
    assert calibration_cache.load_cached(CPU, "2.13.0", 4) is None


def rendered(table: object) -> str:
    console = Console(width=100)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_measured_and_datasheet_stand_side_by_side_and_unmixed() -> None:
    text = rendered(ceiling_table(calibration(GPU, threads=None)))
    (row,) = [line for line in text.splitlines() if "GEMM bf16" in line]
    assert "758 TFLOP/s" in row
    assert "989 TFLOP/s" in row
    assert "3.35 TB/s" in text
    assert "whitepaper" in text
    # No share of the datasheet: the only percentage of a row is its spread.
    assert row.count("%") == 1


def test_an_unknown_gpu_has_measured_ceilings_and_no_datasheet_column() -> None:
    unknown = Device(index=0, kind="cuda", name="Some [bold]Future GPU")
    text = rendered(ceiling_table(calibration(unknown, threads=None)))
    assert "Datasheet" not in text
    assert "Some [bold]Future GPU is not in the device table" in text


def test_a_vector_rate_and_a_link_stand_beside_their_own_datasheet_figure() -> None:
    fma = MeasuredCeiling(
        kind="compute",
        name="FMA fp64",
        rate=31e12,
        spread=0.001,
        repeats=7,
        precision="fp64",
        unit="vector",
    )
    link = MeasuredCeiling(
        kind="link", name="NVLink to cuda:1", rate=390e9, spread=0, repeats=7, level="NVLink"
    )
    host = MeasuredCeiling(
        kind="link", name="PCIe d2h", rate=55e9, spread=0, repeats=7, level="PCIe d2h"
    )
    measured = msgspec.structs.replace(calibration(GPU, threads=None), ceilings=(link, fma, host))
    rows = rendered(ceiling_table(measured)).splitlines()
    vector = next(index for index, row in enumerate(rows) if "FMA fp64" in row)
    one_way = next(index for index, row in enumerate(rows) if "NVLink to cuda:1" in row)
    assert "33.5 TFLOP/s" in rows[vector]
    assert "450 GB/s" in rows[one_way]
    assert "64.0 GB/s" in next(row for row in rows if "PCIe d2h" in row)
    assert vector < one_way


def test_launch_cost_clocks_conditions_and_what_is_missing_are_told() -> None:
    base = calibration(GPU, threads=None)
    first, second = (
        msgspec.structs.replace(ceiling, sm_clock_mhz=clock, slowed_by=reasons)
        for ceiling, clock, reasons in zip(
            base.ceilings, (1965, 1980), (("software power cap",), ()), strict=True
        )
    )
    cost = LaunchCost(
        what="empty kernel",
        host_ns=2500.0,
        host_median_ns=3000.0,
        device_ns=1820.0,
        device_spread=0.005,
        batches=500,
        repeats=20,
    )
    measured = msgspec.structs.replace(
        base,
        ceilings=(first, second),
        launch_costs=(cost,),
        conditions=("idle: other programs used 0% of the GPU just before",),
        refused=("DRAM copy", "L3 read"),
        left_out=("GEMM fp8: not on this device, or emulated",),
    )
    assert list(remarks(measured)) == [
        "Launch cost, empty kernel: 2.50 µs of the host at least, 3.00 µs in the median, "
        "1.82 µs of the device (spread 0.5%).",
        "SM clock 1965 to 1980 MHz.",
        "Lowered by software power cap in GEMM bf16.",
        "Idle: other programs used 0% of the GPU just before.",
        "Refused, because too few repeats were undisturbed and agree: DRAM copy, L3 read.",
        "Not measured: GEMM fp8: not on this device, or emulated.",
    ]
