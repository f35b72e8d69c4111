"""Settings that can cost: which are in force, and which a capture shows to cost."""

import os
import re
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import msgspec
import polars as pl
import pytest
import torch
from capture_builder import H100, CaptureBuilder
from rich.console import Console

from gpuprof.collectors.live.fingerprint import collect_fingerprint
from gpuprof.collectors.live.host_settings import cpu_governor, cpu_quota_cores
from gpuprof.collectors.live.torch_settings import torch_settings
from gpuprof.collectors.manifest import Device, Fingerprint
from gpuprof.collectors.settings import advisory_variables, settings, values_in_force
from gpuprof.reports.html.page import render_html
from gpuprof.reports.markdown import render_markdown
from gpuprof.reports.terminal import render_summary
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.machine.environment import differences, strict_key
from gpuprof.roofline.setting_figures import CostlySetting
from gpuprof.roofline.settings.evidence import KINDS, find_evidence
from gpuprof.roofline.settings.known import KnownOfStep
from gpuprof.roofline.step_figures import Exposed, StepTimes

MS = 1_000_000
CPU = Device(index=0, kind="cpu", name="A CPU", multiprocessors=8)


# -- the table -------------------------------------------------------------------------------------


def test_each_row_is_one_setting_with_evidence_that_exists() -> None:
    names = [row.name for row in settings()]
    assert len(set(names)) == len(names)
    assert {row.evidence for row in settings()} == set(KINDS)
    for row in settings():
        assert all(value == value.lower() for value in row.slow)
        assert row.does
        assert row.source
        assert (row.where == "variable") == bool(re.fullmatch(r"[A-Z][A-Z0-9_]+[A-Z]", row.name))


def test_what_a_program_should_do_itself_is_advice_and_no_setting() -> None:
    assert {row.where for row in settings() if not row.slow} == {"machine"}


# -- what is in force ------------------------------------------------------------------------------


@pytest.fixture
def changed_torch() -> Iterator[None]:
    torch.autograd.set_detect_anomaly(True)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = True
    yield
    torch.autograd.set_detect_anomaly(False)
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.benchmark = False


def test_only_what_is_not_at_its_default_is_recorded(changed_torch: None) -> None:
    found = torch_settings()
    assert found["anomaly detection"] == "on"
    assert found["deterministic algorithms"] == "warn only"
    assert found["cudnn.benchmark"] == "on"
    assert "cudnn.enabled" not in found
    assert "cudnn.deterministic" not in found


def test_torch_at_its_defaults_has_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not {name for name in torch_settings() if "function" not in name}
    monkeypatch.delitem(sys.modules, "torch")
    assert torch_settings() == {}


def test_a_function_that_python_calls_for_each_line_is_named_by_its_module() -> None:
    before = sys.gettrace()

    def trace(*_: object) -> None:
        return None

    sys.settrace(trace)
    try:
        found = torch_settings()
    finally:
        sys.settrace(before)
    assert found["tracing function"] == __name__


def test_variables_of_the_table_are_in_the_fingerprint() -> None:
    environment = {"CUDA_LAUNCH_BLOCKING": "1", "TORCH_LOGS": "+dynamo", "SECRET": "x"}
    found = collect_fingerprint(environment, import_torch=False)
    assert found.environment == {"CUDA_LAUNCH_BLOCKING": "1", "TORCH_LOGS": "+dynamo"}


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2.0),
        ({"sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        (
            {
                "proc/self/cgroup": "0::/user.slice/job\n",
                "sys/fs/cgroup/user.slice/job/cpu.max": "150000 100000",
                "sys/fs/cgroup/cpu.max": "max 100000",
            },
            1.5,
        ),
        (
            {
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            0.5,
        ),
        (
            {
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            None,
        ),
        (
            {
                "proc/self/cgroup": "0::/user.slice/session.scope\n",
                "sys/fs/cgroup/user.slice/session.scope/cpu.max": "max 100000",
                "sys/fs/cgroup/user.slice/cpu.max": "150000 100000",
            },
            1.5,
        ),
        (
            {
                "proc/self/cgroup": "0::/user.slice/session.scope\n",
                "sys/fs/cgroup/user.slice/session.scope/cpu.max": "400000 100000",
                "sys/fs/cgroup/user.slice/cpu.max": "150000 100000",
            },
            1.5,
        ),
        ({"sys/fs/cgroup/cpu.max": "nonsense"}, None),
        ({}, None),
    ],
)
def test_a_quota_of_cores(tmp_path: Path, files: dict[str, str], cores: float | None) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert cpu_quota_cores(tmp_path) == cores


def test_governors_of_all_cores_are_named_once(tmp_path: Path) -> None:
    assert cpu_governor(tmp_path) is None
    for core, governor in enumerate(("powersave", "powersave", "performance")):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{core}/cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text(f"{governor}\n")
    assert cpu_governor(tmp_path) == "performance, powersave"


def test_threads_count_over_all_processes_of_the_machine() -> None:
    machine = Fingerprint(cpu_cores=16, torch_threads=16)
    assert values_in_force(machine) == {}
    four = msgspec.structs.replace(machine, environment={"LOCAL_WORLD_SIZE": "4"})
    assert values_in_force(four)["torch threads"] == "64 of 4 processes on 16 cores"
    limited = msgspec.structs.replace(machine, cpu_quota_cores=2.0)
    assert values_in_force(limited) == {"CPU quota": "2 of 16 cores, 16 threads"}
    assert values_in_force(msgspec.structs.replace(limited, torch_threads=2)) == {}


def test_what_only_prints_leaves_captures_comparable() -> None:
    plain = Fingerprint(environment={"RANK": "0"}, torch_settings={})
    loud = Fingerprint(environment={"NCCL_DEBUG": "WARN"})
    assert "NCCL_DEBUG" in advisory_variables()
    assert differences(plain, loud).strict == ()
    assert differences(plain, loud).advisory == ("NCCL_DEBUG: not set against WARN",)
    assert strict_key(plain) == strict_key(loud)
    blocking = Fingerprint(environment={"CUDA_LAUNCH_BLOCKING": "1"})
    assert differences(plain, blocking).strict == ("CUDA_LAUNCH_BLOCKING: not set against 1",)
    assert strict_key(plain) != strict_key(blocking)
    tried = Fingerprint(torch_settings={"cudnn.benchmark": "on"})
    assert differences(plain, tried).strict == ("cudnn.benchmark: not set against on",)
    assert strict_key(plain) != strict_key(tried)
    # A capture of an older version does not say.
    older = Fingerprint()
    assert differences(older, tried).strict == ()
    assert strict_key(older) == strict_key(plain)


# -- what costs ------------------------------------------------------------------------------------


def analysed(build: CaptureBuilder, device: Device = H100, **facts: object) -> Analysis:
    return analyze(build.build(device, facts=facts))


def costly(analysis: Analysis) -> dict[str, CostlySetting]:
    assert analysis.settings is not None
    return {found.name: found for found in analysis.settings.costly}


def two_steps(build: CaptureBuilder, *, work_ns: int, step_ns: int = 10 * MS) -> None:
    """Two profiled steps with one bf16 product each."""
    for number in range(2):
        start = number * step_ns
        build.step("profiled", start, start + step_ns)
        build.mm(start + 10, start + 60)
        build.kernel(start + 20, start + 30, start + 30 + work_ns, "gemm")


BLOCKING = {"CUDA_LAUNCH_BLOCKING": "1"}
DEBUG = {"PYTHONMALLOC": "debug", "NCCL_DEBUG": "INFO", "NCCL_P2P_DISABLE": "1"}


def test_launch_blocking_falsifies_wherever_it_is_set(build: CaptureBuilder) -> None:
    two_steps(build, work_ns=9 * MS)
    assert costly(analysed(build)) == {}
    assert costly(analysed(build, environment={"CUDA_LAUNCH_BLOCKING": "0"})) == {}
    analysis = analysed(build, environment=BLOCKING)
    found = costly(analysis)["CUDA_LAUNCH_BLOCKING"]
    assert (found.value, found.falsifies) == ("1", True)
    assert found.gain_ns is None
    console = Console(file=StringIO(), width=200)
    render_summary(analysis, console)
    assert isinstance(console.file, StringIO)
    for text in (console.file.getvalue(), render_html(analysis), render_markdown(analysis)):
        said = " ".join(text.split())
        assert "LAUNCH" in said
        assert "finding the launch that failed" in said


def test_debugging_switches_are_named_where_the_device_waits(build: CaptureBuilder) -> None:
    two_steps(build, work_ns=2 * MS)
    found = costly(analysed(build, environment=DEBUG))
    assert set(found) == {"PYTHONMALLOC"}
    assert found["PYTHONMALLOC"].gain_ns == pytest.approx(8 * MS, rel=0.01)
    assert "80% of a profiled step has no device work" in found["PYTHONMALLOC"].evidence


def test_where_the_device_never_waits_they_are_only_listed(build: CaptureBuilder) -> None:
    two_steps(build, work_ns=19 * MS // 2)
    analysis = analysed(build, environment=DEBUG)
    assert costly(analysis) == {}
    assert analysis.settings is not None
    assert set(analysis.settings.harmless) == {f"{name}={DEBUG[name]}" for name in DEBUG}
    assert "nothing in this capture shows that it costs" in render_markdown(analysis)


@pytest.mark.parametrize(("waits_ns", "moving"), [(None, "4 ms"), (0, "4 ms"), (3 * MS, "1 ms")])
def test_waits_for_other_ranks_are_no_setting_s_doing(waits_ns: int | None, moving: str) -> None:
    times = StepTimes(
        found_by="optimizer steps", warmup=1, timed=1, profiled=1, clock="", median_ns=10 * MS
    )
    exposed = Exposed(
        computing_ns=6 * MS, communication_ns=4 * MS, rank_waits_ns=waits_ns, copies_ns=0
    )
    known = KnownOfStep(times, None, exposed, (), (), pl.DataFrame)

    found = find_evidence("communication", known)

    assert found is not None
    assert found.sentence.startswith(
        f"{moving} of a profiled step is communication that nothing hides"
    )
    assert ("waits for other ranks" in found.sentence) == bool(waits_ns)


def test_a_cpu_has_no_settings_of_a_gpu(build: CaptureBuilder) -> None:
    two_steps(build, work_ns=2 * MS)
    assert costly(analysed(build, CPU, environment={**BLOCKING, **DEBUG})) == {}


def test_the_driver_s_memory_calls_within_steps_cost(build: CaptureBuilder) -> None:
    two_steps(build, work_ns=6 * MS)
    for number in range(2):
        start = number * 10 * MS
        build.rows["launches"] += [
            {
                "name": name,
                "thread": 1,
                "start_ns": start + offset * MS,
                "end_ns": start + (offset + 1) * MS,
            }
            for name, offset in (("cudaMalloc", 7), ("cudaFree", 8), ("cudaMallocAsync", 9))
        ]
    assert costly(analysed(build)) == {}
    settings_of_allocator = {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:32"}
    (found,) = costly(analysed(build, environment=settings_of_allocator)).values()
    assert found.name == "PYTORCH_CUDA_ALLOC_CONF"
    assert found.gain_ns == 2 * MS
    assert found.evidence.startswith("2 calls of a profiled step")
    # A step that sets the program up is not one that is repeated.
    build.step("timed", 30 * MS, 40 * MS, device_ns=10 * MS)
    build.step("timed", 40 * MS, 50 * MS, device_ns=10 * MS)
    assert costly(analysed(build, environment=settings_of_allocator)) == {}


def float32_products(build: CaptureBuilder, kernel: str, *, busy_ns: int) -> None:
    dims, types = "[[2048, 2048], [2048, 2048]]", '["float", "float"]'
    for number in range(2):
        start = number * 10 * MS
        build.step("profiled", start, start + 10 * MS)
        build.op("aten::mm", start + 10, start + 60, dims=dims, types=types)
        build.kernel(start + 20, start + 30, start + 30 + busy_ns, kernel)


def test_products_of_float32_without_tensor_cores_name_what_forbids_tf32(
    build: CaptureBuilder,
) -> None:
    float32_products(build, "ampere_sgemm_128x64_nn", busy_ns=MS // 2)
    # What the program itself should allow is advice, and no setting.
    assert costly(analysed(build, allow_tf32_matmul=False)) == {}
    forbidden = {"NVIDIA_TF32_OVERRIDE": "0"}
    found = costly(analysed(build, allow_tf32_matmul=False, environment=forbidden))
    assert set(found) == {"NVIDIA_TF32_OVERRIDE"}
    # By hand: 2 * 2048^3 FLOPs at 66.9 and at 494.7 TFLOP/s, by the ratio of which the time falls.
    assert found["NVIDIA_TF32_OVERRIDE"].gain_ns == pytest.approx(
        MS // 2 * (1 - 66.9 / 494.7), rel=0.01
    )
    assert "5% of a profiled step" in found["NVIDIA_TF32_OVERRIDE"].evidence


def test_convolutions_far_below_their_roof_name_a_library_that_is_off(
    build: CaptureBuilder,
) -> None:
    for number in range(2):
        start = number * 10 * MS
        build.step("profiled", start, start + 10 * MS)
        build.convolution(start + 10, start + 60)
        build.kernel(start + 20, start + 30, start + 9 * MS, "implicit_convolve_sgemm")
    assert costly(analysed(build, torch_settings={})) == {}
    assert set(costly(analysed(build, torch_settings={"cudnn.enabled": "off"}))) == {
        "cudnn.enabled"
    }


def test_products_that_take_little_of_a_step_name_nothing(build: CaptureBuilder) -> None:
    float32_products(build, "ampere_sgemm_128x64_nn", busy_ns=MS // 9)
    forbidden = {"NVIDIA_TF32_OVERRIDE": "0"}
    assert costly(analysed(build, allow_tf32_matmul=False, environment=forbidden)) == {}


def test_waiting_for_a_core_names_too_many_threads(build: CaptureBuilder) -> None:
    for number in range(10):
        start = number * 10 * MS
        build.step("timed", start, start + 10 * MS, run_delay_ns=2 * MS)
    crowd = {"torch_threads": 8, "cpu_cores": 8, "cpu_quota_cores": 2.0}
    found = costly(analysed(build, CPU, **crowd))
    assert set(found) == {"CPU quota"}
    assert found["CPU quota"].value == "2 of 8 cores, 8 threads"
    assert found["CPU quota"].gain_ns == 2 * MS
    assert costly(analysed(build, CPU, torch_threads=8, cpu_cores=8)) == {}


def test_older_captures_have_settings_of_their_own_facts(build: CaptureBuilder) -> None:
    old = msgspec.json.decode(
        b'{"torch": "2.6.0", "environment": {"CUDA_LAUNCH_BLOCKING": "1"}}', type=Fingerprint
    )
    assert old.torch_settings is None
    assert values_in_force(old) == {"CUDA_LAUNCH_BLOCKING": "1"}
    assert os.environ.get("CUDA_LAUNCH_BLOCKING") is None
