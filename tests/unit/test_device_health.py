"""The health of GPUs: what NVML, sysfs and the kernel's log say of it, and what costs."""

import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from capture_builder import H100, CaptureBuilder
from fake_nvml import FAULTS, FakeNvml, Faulty

from gpuprof.collectors.device_health import DeviceHealth
from gpuprof.collectors.live.kernel_log import XidMessage, xid_messages
from gpuprof.collectors.live.nvml.health import cpu_numbers, device_health
from gpuprof.collectors.live.nvml.topology import topology
from gpuprof.profiler.machine import health_checks
from gpuprof.reports.html.page import render_html
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.machine.check import Check
from gpuprof.roofline.setting_figures import CostlySetting

MS = 1_000_000
ASKED = (
    "nvmlDeviceGetPciInfo",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetPowerManagementDefaultLimit",
    "nvmlDeviceGetTotalEccErrors",
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetMaxPcieLinkGeneration",
    "nvmlDeviceGetMaxPcieLinkWidth",
    "nvmlDeviceGetNvLinkState",
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetProcessUtilization",
    "nvmlDeviceGetMigMode",
)
DEVICE = msgspec.structs.replace(H100, maximum_sm_clock_mhz=1980)
HEALTHY = DeviceHealth(
    index=0,
    pci_address="0000:3b:00.0",
    power_limit_milliwatts=700_000,
    default_power_limit_milliwatts=700_000,
    uncorrected_memory_errors=0,
    remapped_rows=0,
    remapping_pending=False,
    remapping_failed=False,
    maximum_pcie_generation=5,
    maximum_pcie_width=16,
    nvlinks_active=18,
    nvlinks_inactive=0,
    compute_processes=1,
    active_processes=1,
    mig=False,
    numa_node=0,
    local_cpus="0-4095",
    allowed_cpus=8,
    allowed_local_cpus=8,
    xids=(),
)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    library = FakeNvml(devices=2)
    use(monkeypatch, library)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return library


def use(monkeypatch: pytest.MonkeyPatch, library: Any) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library)


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "sys/bus/pci/devices/0000:3b:00.0"
    folder.mkdir(parents=True)
    (folder / "numa_node").write_text("0\n")
    (folder / "local_cpulist").write_text("0-4095\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3, 4, 5, 6, 7})
    return tmp_path


def test_a_healthy_device_is_described(nvml: FakeNvml, system: Path) -> None:
    first, second = device_health(system, lambda: ())
    assert first == HEALTHY
    assert (second.index, second.pci_address) == (1, "0000:3c:00.0")
    # Nothing on this system says where it is attached.
    assert (second.numa_node, second.local_cpus, second.allowed_local_cpus) == (None, None, None)
    assert nvml.sessions == 0


def test_messages_of_the_driver_belong_to_their_device(nvml: FakeNvml, system: Path) -> None:
    log = (
        XidMessage("0000:3c:00", 79),
        XidMessage("0000:3b:00", 13),
        XidMessage("0000:3b:00", 48),
    )
    first, second = device_health(system, lambda: log)
    assert (first.xids, second.xids) == ((13, 48), (79,))
    unreadable, _ = device_health(system, lambda: None)
    assert unreadable.xids is None


@pytest.mark.parametrize("function", ASKED)
def test_what_nvml_gets_wrong_is_unknown(
    function: str, system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, fault in FAULTS.items():
        use(monkeypatch, Faulty(FakeNvml(), function, fault))
        (found,) = device_health(system, lambda: ())
        for field in DeviceHealth.__struct_fields__:
            value = getattr(found, field)
            assert value is None or value == getattr(HEALTHY, field), (name, field)


def test_without_nvml_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, None)
    assert device_health() == ()
    assert topology() == {}


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0-3,8", {0, 1, 2, 3, 8}), ("5", {5}), ("", set()), ("1, 3-4", {1, 3, 4})],
)
def test_lists_of_cpus(text: str, numbers: set[int]) -> None:
    assert cpu_numbers(text) == numbers


def test_links_that_are_down_are_counted(
    nvml: FakeNvml, system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        FakeNvml, "nvmlDeviceGetNvLinkState", lambda self, handle, link: (1, 1, 0, 1)[link]
    )
    first, _ = device_health(system, lambda: ())
    assert (first.nvlinks_active, first.nvlinks_inactive) == (3, 1)
    assert topology() == {(0, 1): "NV3"}


def test_gpus_are_connected_by_switches_links_or_pcie(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert topology() == {(0, 1): "NV18"}

    def remote(self: FakeNvml, handle: int, link: int) -> object:
        return self.nvmlDeviceGetPciInfo(1 - handle if link < 4 else 7)

    monkeypatch.setattr(FakeNvml, "nvmlDeviceGetNvLinkRemoteDeviceType", lambda *_: 0)
    monkeypatch.setattr(FakeNvml, "nvmlDeviceGetNvLinkRemotePciInfo", remote, raising=False)
    assert topology() == {(0, 1): "NV4"}
    monkeypatch.setattr(FakeNvml, "nvmlDeviceGetNvLinkState", lambda *_: 0)
    assert topology() == {(0, 1): "SYS"}
    monkeypatch.setattr(FakeNvml, "nvmlDeviceGetTopologyCommonAncestor", lambda *_: 77)
    assert topology() == {(0, 1): "unknown"}


def test_the_kernel_s_log_is_searched_for_the_driver_s_errors(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    assert xid_messages(log) is None
    log.write_bytes(
        b"6,100,1,-;nvidia: loading out-of-tree module\n"
        b"3,101,2,-;NVRM: Xid (PCI:0000:3B:00): 79, pid=1, GPU has fallen off the bus.\n"
        b"4,102,3,-;NVRM: Xid (PCI:0000:3b:00): 13, Graphics Exception\n"
        b"4,103,4,-;\xff\xfe Xid: not ours 99\n"
    )
    assert xid_messages(log) == (XidMessage("0000:3b:00", 79), XidMessage("0000:3b:00", 13))


# -- what costs a step -----------------------------------------------------------------------------


def found_by_health(
    build: CaptureBuilder,
    health: DeviceHealth,
    **sample: int,
) -> dict[str, CostlySetting]:
    """Ten timed steps of 10 ms with 4 ms of exposed copies to the device, and 5 ms of a product."""
    usual = {"sm_clock_mhz": 1980, "throttle_reasons": 0, "pcie_generation": 5, "pcie_width": 16}
    for number in range(2):
        start = number * 10 * MS
        build.step("profiled", start, start + 10 * MS)
        build.mm(start + 10, start + 60)
        build.kernel(start + 20, start + 30, start + 5 * MS, "gemm")
        build.op("aten::copy_", start + 70, start + 90)
        build.kernel(
            start + 80,
            start + 5 * MS,
            start + 9 * MS,
            "Memcpy HtoD (Pinned -> Device)",
            kind="memcpy",
            bytes=10**8,
        )
    for number in range(10):
        start = (100 + number * 10) * MS
        build.step("timed", start, start + 10 * MS, device_ns=10 * MS, device_start_ns=start)
        build.rows["samples"].append({"time_ns": start + MS, "device": 0, **usual, **sample})
    analysis = analyze(build.build(DEVICE, device_health=(health,)))
    assert analysis.settings is not None
    assert analysis.health == health
    assert "Health at the end of the run" in render_html(analysis)
    return {found.name: found for found in analysis.settings.costly}


def test_a_healthy_device_costs_nothing(build: CaptureBuilder) -> None:
    assert found_by_health(build, HEALTHY) == {}


def test_a_lowered_power_limit_costs_where_the_clock_falls(build: CaptureBuilder) -> None:
    lowered = msgspec.structs.replace(HEALTHY, power_limit_milliwatts=500_000)
    found = found_by_health(build, lowered, sm_clock_mhz=1485, throttle_reasons=0x4)
    assert set(found) == {"power limit"}
    # A quarter of the clock is missing, and as much of the 5 ms that compute.
    assert found["power limit"].gain_ns == pytest.approx(5 * MS / 4, rel=0.01)
    assert "500 W of 700 W by default" in found["power limit"].evidence


def test_the_default_power_limit_is_no_finding(build: CaptureBuilder) -> None:
    assert found_by_health(build, HEALTHY, sm_clock_mhz=1485, throttle_reasons=0x4) == {}


def test_heat_costs_what_the_clock_lost(build: CaptureBuilder) -> None:
    found = found_by_health(
        build, HEALTHY, sm_clock_mhz=990, throttle_reasons=0x24, temperature_celsius=91
    )
    assert set(found) == {"slowed down by heat or hardware"}
    (slowed,) = found.values()
    assert slowed.gain_ns == pytest.approx(5 * MS / 2, rel=0.01)
    assert "software thermal slowdown at 91 degrees" in slowed.evidence


def test_a_slow_link_costs_where_copies_are_exposed(build: CaptureBuilder) -> None:
    found = found_by_health(build, HEALTHY, pcie_generation=4, pcie_width=8)
    assert set(found) == {"PCIe link"}
    # A quarter of the rate.
    assert found["PCIe link"].gain_ns == pytest.approx(4 * MS * 3 / 4, rel=0.01)


def test_broken_memory_and_shared_devices_are_warnings(build: CaptureBuilder) -> None:
    broken = msgspec.structs.replace(
        HEALTHY, remapping_pending=True, uncorrected_memory_errors=2, active_processes=3
    )
    found = found_by_health(build, broken)
    assert set(found) == {"memory errors", "other processes"}
    assert all(setting.falsifies for setting in found.values())
    assert "2 uncorrected" in found["memory errors"].evidence


def test_cpus_of_another_node_matter_where_the_device_waits(build: CaptureBuilder) -> None:
    far = msgspec.structs.replace(HEALTHY, allowed_local_cpus=0)
    found = found_by_health(build, far)
    assert set(found) == {"CPU affinity"}
    assert "none of the 8 CPUs" in found["CPU affinity"].evidence


# -- doctor ----------------------------------------------------------------------------------------


def checks_of(
    monkeypatch: pytest.MonkeyPatch, health: DeviceHealth, **readings: int
) -> dict[str, Check]:
    monkeypatch.setattr(health_checks, "device_health", lambda: (health,))
    monkeypatch.setattr(health_checks, "under_load", lambda torch, devices: {0: readings})
    monkeypatch.setattr(health_checks, "topology", lambda: {(0, 1): "NV18"})
    return {check.name: check for check in health_checks.health_checks(None)}


def test_doctor_lists_what_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    found = checks_of(
        monkeypatch,
        HEALTHY,
        sm_clock_mhz=1980,
        throttle_reasons=0,
        pcie_generation=5,
        pcie_width=16,
    )
    about_gpu = {name: check for name, check in found.items() if name.startswith("GPU")}
    assert len(about_gpu) == 9
    assert all(check.state == "yes" for check in about_gpu.values())
    assert about_gpu["GPU topology"].finding == "0-1 NV18"
    assert about_gpu["GPU 0 PCIe link"].finding.startswith("generation 5 x16 while copying")


def test_doctor_says_what_to_do_about_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    ill = msgspec.structs.replace(
        HEALTHY,
        power_limit_milliwatts=500_000,
        remapping_failed=True,
        nvlinks_inactive=2,
        active_processes=2,
        allowed_local_cpus=0,
        mig=True,
        xids=(13, 79),
    )
    found = checks_of(
        monkeypatch, ill, sm_clock_mhz=990, throttle_reasons=0x40, pcie_generation=3, pcie_width=16
    )
    troubled = {name for name, check in found.items() if check.group == "Health" and check.remedy}
    assert troubled == {
        "GPU 0 power limit",
        "GPU 0 clocks",
        "GPU 0 memory",
        "GPU 0 PCIe link",
        "GPU 0 NVLink",
        "GPU 0 processes",
        "GPU 0 MIG",
        "GPU 0 CPUs",
        "GPU 0 Xid messages",
        "GPU topology",
    }
    # A kernel's own fault is no fault of the device.
    own = checks_of(monkeypatch, msgspec.structs.replace(HEALTHY, xids=(13, 31)))
    assert own["GPU 0 Xid messages"].remedy == ""
    # What nobody told is not listed.
    unknown = checks_of(monkeypatch, DeviceHealth(index=0))
    assert {name for name in unknown if name.startswith("GPU 0")} == set()


def test_doctor_lists_settings_that_can_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    monkeypatch.setenv("TORCH_LOGS", "+dynamo")
    found = {check.name: check for check in health_checks.setting_checks()}
    assert found["CUDA_LAUNCH_BLOCKING"].state == "no"
    assert found["TORCH_LOGS"].state == "partly"
    assert "+dynamo: torch prints what it does" in found["TORCH_LOGS"].finding
