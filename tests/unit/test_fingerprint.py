"""The fingerprint: what is known of this process, and nothing that could be a secret."""

import builtins
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gpuprof.collectors.live import fingerprint
from gpuprof.collectors.live.fingerprint import (
    ENVIRONMENT_VARIABLES,
    accelerators,
    collect_fingerprint,
)
from gpuprof.collectors.manifest import Fingerprint
from gpuprof.roofline.machine.environment import differences


def test_only_the_named_variables_are_stored() -> None:
    environment = {
        "OMP_NUM_THREADS": "2",
        "CUDA_VISIBLE_DEVICES": "",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "NCCL_SECRET": "secret",
        "TORCH_HOME": "/home/someone",
        "HF_TOKEN": "secret",
    }
    collected = collect_fingerprint(environment)
    assert collected.environment == {"OMP_NUM_THREADS": "2", "CUDA_VISIBLE_DEVICES": ""}
    assert "secret" not in msgspec.json.encode(collected).decode()


def test_the_names_are_spelled_out_and_sorted() -> None:
    assert list(ENVIRONMENT_VARIABLES) == sorted(set(ENVIRONMENT_VARIABLES))
    assert not any("*" in name for name in ENVIRONMENT_VARIABLES)


def test_this_process_is_described() -> None:
    torch = pytest.importorskip("torch")
    collected = collect_fingerprint({})
    assert collected.torch == torch.__version__
    assert collected.torch_threads == torch.get_num_threads()
    assert collected.python == ".".join(map(str, sys.version_info[:3]))
    assert collected.devices
    assert collected.cpu_cores is not None
    assert collected.cpu_cores >= 1
    decoded = msgspec.json.decode(msgspec.json.encode(collected), type=Fingerprint)
    assert decoded == collected


def test_without_a_gpu_the_device_is_the_cpu_with_its_usable_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    collected = collect_fingerprint({})
    (device,) = collected.devices
    assert device.kind == "cpu"
    assert device.multiprocessors == collected.cpu_cores
    assert device.total_memory_bytes is not None
    assert device.total_memory_bytes > 2**20


def test_a_broken_torch_leaves_its_facts_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = builtins.__import__

    def failing_import(name: str, *arguments: Any, **keywords: Any) -> Any:
        if name == "torch":
            raise OSError("libcudart.so: cannot open shared object file")
        return real_import(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", failing_import)
    collected = collect_fingerprint({})
    assert collected.torch is None
    assert collected.allow_tf32_matmul is None
    assert collected.devices[0].kind == "cpu"


def test_each_probe_that_fails_leaves_its_own_field_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> None:
        raise OSError("no such file")

    monkeypatch.setattr(fingerprint, "_driver_version", fail)
    monkeypatch.setattr(fingerprint, "_cpuinfo", fail)
    monkeypatch.setattr(fingerprint, "last_level_cache_bytes", fail)
    collected = collect_fingerprint({})
    assert collected.driver is None
    assert collected.cpu is None
    assert collected.python is not None


def test_a_gpu_that_cannot_be_asked_is_unknown_and_not_the_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch")

    def forked() -> int:
        raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", forked)
    assert collect_fingerprint({}).devices == ()


_FLOAT32 = {
    "torch.set_float32_matmul_precision('medium')": ("medium", True, True),
    "torch.backends.cudnn.allow_tf32 = False": ("highest", False, False),
    "torch.backends.fp32_precision = 'tf32'": ("high", True, True),
    "torch.backends.cudnn.conv.fp32_precision = 'ieee'": ("highest", False, False),
}
# Each statement has a process of its own, and all of them one import of torch.
_EACH_IN_A_FORK = """
import os, sys
import torch
from gpuprof.collectors.live.fingerprint import collect_fingerprint
for statement in sys.argv[1:]:
    if os.fork() == 0:
        exec(statement)
        f = collect_fingerprint({})
        print(f.float32_matmul_precision, f.allow_tf32_matmul, f.allow_tf32_cudnn, flush=True)
        os._exit(0)
    os.wait()
"""


def test_float32_settings_are_read_from_the_older_and_the_newer_interface() -> None:
    torch = pytest.importorskip("torch")
    is_known = {
        statement: "fp32_precision" not in statement or hasattr(torch.backends, "fp32_precision")
        for statement in _FLOAT32
    }
    expected = {name: known for name, known in _FLOAT32.items() if is_known[name]}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _EACH_IN_A_FORK, *expected],
        capture_output=True,
        text=True,
        check=False,
    )
    found = [tuple(line.split()) for line in done.stdout.splitlines()]
    assert found == [tuple(map(str, settings)) for settings in expected.values()], done.stderr


def test_the_override_variable_turns_tf32_off() -> None:
    pytest.importorskip("torch")
    collected = collect_fingerprint({"NVIDIA_TF32_OVERRIDE": "0"})
    assert collected.allow_tf32_matmul is False
    assert collected.allow_tf32_cudnn is False


def fake_torch(**properties: Any) -> SimpleNamespace:
    return SimpleNamespace(
        cuda=SimpleNamespace(
            device_count=lambda: 1,
            get_device_properties=lambda index: SimpleNamespace(**properties),
        ),
        version=SimpleNamespace(cuda="13.0", hip=None),
    )


def test_a_gpu_without_nvml_keeps_what_torch_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "open_library", lambda: (None, "no driver"))
    torch = fake_torch(
        name="NVIDIA H100 80GB HBM3", total_memory=85 * 10**9, multi_processor_count=132,
        major=9, minor=0, L2_cache_size=52428800, warp_size=32,
    )  # fmt: skip
    (device,) = accelerators(torch)
    assert device.compute_capability == "9.0"
    assert device.multiprocessors == 132
    assert device.l2_cache_bytes == 52428800
    # Older torch has no uuid; nothing tells the power limit without NVML.
    assert (device.uuid, device.power_limit_milliwatts, device.mig) == (None, None, None)


def test_nvml_adds_limits_and_says_whether_it_is_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    class NVMLError(Exception):
        pass

    def by_uuid(uuid: str) -> str:
        if uuid != "MIG-1-2":
            raise NVMLError(uuid)
        return "handle"

    def unsupported(handle: str, clock: int) -> int:
        raise NVMLError("Not Supported")

    library = SimpleNamespace(
        NVMLError=NVMLError,
        NVML_CLOCK_SM=1,
        NVML_CLOCK_MEM=2,
        nvmlDeviceGetHandleByUUID=by_uuid,
        nvmlDeviceGetUUID=lambda handle: b"MIG-1-2",
        nvmlDeviceGetEnforcedPowerLimit=lambda handle: 700_000,
        nvmlDeviceGetMaxClockInfo=unsupported,
        nvmlDeviceIsMigDeviceHandle=lambda handle: 1,
        nvmlShutdown=lambda: None,
    )
    monkeypatch.setattr(fingerprint, "open_library", lambda: (library, ""))
    torch = fake_torch(
        name="NVIDIA H100 80GB HBM3 MIG 1g.10gb", total_memory=10**10, multi_processor_count=16,
        major=9, minor=0, L2_cache_size=6553600, warp_size=32, uuid="1-2",
    )  # fmt: skip
    (device,) = accelerators(torch)
    assert device.uuid == "MIG-1-2"
    assert device.mig is True
    assert device.power_limit_milliwatts == 700_000
    assert device.maximum_sm_clock_mhz is None


@pytest.mark.parametrize(("graphics", "expected"), [(1410, 1410), (1980, None)])
def test_application_clocks_are_told_where_somebody_set_them(
    monkeypatch: pytest.MonkeyPatch, graphics: int, expected: int | None
) -> None:
    library = SimpleNamespace(
        NVMLError=RuntimeError,
        NVML_CLOCK_GRAPHICS=0,
        NVML_CLOCK_MEM=2,
        nvmlDeviceGetHandleByUUID=lambda uuid: "handle",
        nvmlDeviceGetUUID=lambda handle: b"GPU-a",
        nvmlDeviceGetApplicationsClock=lambda handle, clock: {0: graphics, 2: 2619}[clock],
        nvmlDeviceGetDefaultApplicationsClock=lambda handle, clock: {0: 1980, 2: 2619}[clock],
        nvmlShutdown=lambda: None,
    )
    monkeypatch.setattr(fingerprint, "open_library", lambda: (library, ""))
    torch = fake_torch(
        name="NVIDIA H200", total_memory=141 * 10**9, multi_processor_count=132,
        major=9, minor=0, L2_cache_size=62914560, warp_size=32, uuid="a",
    )  # fmt: skip
    (device,) = accelerators(torch)
    assert device.application_graphics_clock_mhz == expected
    assert device.application_memory_clock_mhz is None
    default = msgspec.structs.replace(device, application_graphics_clock_mhz=None)
    found = differences(Fingerprint(devices=(default,)), Fingerprint(devices=(device,))).strict
    assert found == (
        () if expected is None else ("device application graphics clock mhz: not set against 1410",)
    )
