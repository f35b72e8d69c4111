"""`gpuprof doctor`: what is there, what is missing, and that nothing broken stops it."""

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from fake_nvml import FAULTS, FakeNvml, Faulty
from json_documents import read_answer
from rich.console import Console

from gpuprof.collectors.live.collector import Availability
from gpuprof.collectors.live.roster import ROSTER
from gpuprof.collectors.manifest import Device
from gpuprof.collectors.tools import TOOL_PLACES, find_tool
from gpuprof.profiler.machine import checks as machine_checks
from gpuprof.profiler.machine.checks import counter_permission, torch_checks
from gpuprof.reports.json_answers.of_machines import Checks
from gpuprof.reports.machine.checks import checks_table
from gpuprof.roofline.machine.check import Check


def doctor(
    *arguments: str, python_path: str = "", columns: int = 100
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": str(columns), "NO_COLOR": "1", "PATH": ""}
    if python_path:
        environment["PYTHONPATH"] = python_path
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "gpuprof", "doctor", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )


def test_it_lists_what_there_is_and_exits_0() -> None:
    done = doctor("--json")
    assert done.returncode == 0, done.stderr
    assert read_answer(done.stdout)["schema"]["name"] == "doctor"
    checks = msgspec.json.decode(done.stdout, type=Checks).checks
    groups = {check.group for check in checks}
    # Health is that of GPUs.
    assert groups - {"Health"} == {
        *("Devices", "PyTorch", "GPU state", "GPU memory", "Settings", "Tools", "Packages"),
    }
    by_name = {check.name: check for check in checks}
    assert by_name["CPU"].state == "yes"
    assert by_name["Nsight Compute (ncu)"].state in ("no", "partly")
    assert "polars" in by_name["required"].finding


def test_its_table_fits_the_terminal() -> None:
    done = doctor(columns=80)
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "usable cores" in done.stdout


def test_a_torch_that_does_not_import_is_reported(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise OSError('libtorch_cuda.so: not found')\n")
    done = doctor("--json", python_path=str(tmp_path))
    assert done.returncode == 0, done.stderr
    (torch,) = [
        check
        for check in msgspec.json.decode(done.stdout, type=Checks).checks
        if check.name == "torch"
    ]
    assert torch.state == "no"
    assert torch.finding == "OSError: libtorch_cuda.so: not found"
    assert torch.remedy


@pytest.mark.parametrize(
    ("parameters", "capabilities", "state"),
    [
        (None, "0000000000000000", "no"),
        ("RmProfilingAdminOnly: 0\n", "0000000000000000", "yes"),
        ("Other: 0\nRmProfilingAdminOnly: 1\n", "0000000000000000", "no"),
        ("RmProfilingAdminOnly: 1\n", "000001ffffffffff", "yes"),
        # A container's root: many capabilities, not the administrator's.
        ("RmProfilingAdminOnly: 1\n", "00000000a80425fb", "no"),
    ],
)
def test_counter_permission_is_the_drivers_switch_or_the_administrators_capability(
    tmp_path: Path, parameters: str | None, capabilities: str, state: str
) -> None:
    file, status = tmp_path / "params", tmp_path / "status"
    if parameters is not None:
        file.write_text(parameters)
    status.write_text(f"Name:\tpython\nCapEff:\t{capabilities}\n")
    check = counter_permission(file, status)
    assert check.state == state
    if "administrators only" in check.finding:
        assert "NVreg_RestrictProfilingToAdminUsers=0" in check.remedy


def test_a_tool_off_the_path_is_found_where_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for version in ("2025.1.0", "2025.3.1"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "ncu").touch()
    monkeypatch.setitem(TOOL_PLACES, "ncu", ())
    assert find_tool("ncu") is None
    monkeypatch.setitem(TOOL_PLACES, "ncu", (str(tmp_path / "*" / "ncu"),))
    assert find_tool("ncu") == str(tmp_path / "2025.3.1" / "ncu")
    (tmp_path / "bin").mkdir()
    on_path = tmp_path / "bin" / "ncu"
    on_path.write_text("#!/bin/sh\necho 'NVIDIA (R) Nsight Compute'\necho Version 2025.3.1.0\n")
    on_path.chmod(0o755)
    assert find_tool("ncu") == str(on_path)
    check = machine_checks.tool_check("ncu")
    assert check.state == "yes"
    assert check.finding == f"2025.3.1.0, {on_path}"


def fake_torch(*, cuda: str | None, kineto: bool, tracing: bool) -> SimpleNamespace:
    return SimpleNamespace(
        version=SimpleNamespace(cuda=cuda, hip=None),
        autograd=SimpleNamespace(kineto_available=lambda: kineto),
        profiler=SimpleNamespace(
            ProfilerActivity=SimpleNamespace(CUDA="cuda"),
            supported_activities=lambda: {"cpu", "cuda"} if tracing else {"cpu"},
        ),
    )


@pytest.mark.parametrize(
    ("cuda", "kineto", "tracing", "states"),
    [
        ("13.0", True, True, {"GPU build": "yes", "profiler": "yes", "GPU tracing": "yes"}),
        ("13.0", True, False, {"GPU build": "yes", "profiler": "yes", "GPU tracing": "no"}),
        (None, True, False, {"GPU build": "no", "profiler": "yes", "GPU tracing": "no"}),
        ("13.0", False, False, {"GPU build": "yes", "profiler": "no"}),
    ],
)
def test_torchs_build_decides_what_can_be_traced(
    cuda: str | None, kineto: bool, tracing: bool, states: dict[str, str]
) -> None:
    checks = list(torch_checks(fake_torch(cuda=cuda, kineto=kineto, tracing=tracing)))
    assert {check.name: check.state for check in checks} == states


def test_a_gpu_has_its_datasheet_row_or_the_reason_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    known = Device(index=0, kind="cuda", name="NVIDIA H200", multiprocessors=132)
    unknown = Device(index=1, kind="cuda", name="Some Future GPU", multiprocessors=9)
    checks = list(machine_checks.device_checks((known, unknown), None))
    rows = [check for check in checks if check.name == "datasheet peaks"]
    assert [row.state for row in rows] == ["yes", "no"]
    assert "not in the device table" in rows[1].finding
    assert [c.remedy for c in checks if c.name == "measured ceilings"] == ["gpuprof calibrate"] * 3


NVML = ROSTER[0]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_checks, "_RECORDING_S", 0)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_readings_that_do_not_answer_are_named(
    monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    library = FakeNvml(broken="power")
    monkeypatch.setitem(sys.modules, "pynvml", library)
    nvml, readings, *silent = machine_checks.collector_checks(NVML)
    assert (nvml.state, nvml.finding) == ("yes", "driver 570.86.10")
    assert readings.state == "partly"
    assert readings.finding.startswith("sm_clock_mhz, memory_clock_mhz, energy_millijoules")
    remedies = {check.name: check.remedy for check in silent}
    assert "Not Supported" in remedies["GPU 0 power_milliwatts"]
    assert "GPM" in remedies["GPU 0 tensor_active_percent"]
    assert library.sessions == 0


@pytest.mark.parametrize("function", [name for name in dir(FakeNvml) if name.startswith("nvml")])
def test_no_fault_of_nvml_stops_the_list(
    function: str, monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    for fault, answer in FAULTS.items():
        monkeypatch.setitem(sys.modules, "pynvml", Faulty(FakeNvml(gpm=True), function, answer))
        checks = [
            *machine_checks.device_checks((), None),
            *machine_checks.collector_checks(NVML),
        ]
        assert checks, fault
        said = Counter((check.name, check.finding) for check in checks)
        assert max(said.values()) == 1, fault
        assert not [c for c in checks if "\n" in c.finding or "\n" in c.remedy], fault


def test_a_collector_that_cannot_even_be_looked_for_is_one_line() -> None:
    def fail() -> Availability:
        raise OSError("no such bus")

    row = replace(NVML, find=fail)
    assert list(machine_checks.collector_checks(row)) == [
        Check("GPU state", "NVML", "no", "no such bus")
    ]


def test_remedies_stand_below_what_is_missing_and_names_are_escaped() -> None:
    console = Console(width=80)
    with console.capture() as capture:
        console.print(checks_table([Check("Tools", "ncu", "no", "not\x1b[31m found", "get [it]")]))
    text = capture.get()
    assert "\x1b[31m" not in text
    assert "-> get [it]" in text
