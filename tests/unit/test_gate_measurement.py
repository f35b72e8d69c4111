"""What one process measured: samples that count, figures, exact counts, kernels."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest

from gpuprof.collectors import kineto, storage
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.live.fingerprint import cpu_device
from gpuprof.collectors.live.run_delay import RunDelay
from gpuprof.collectors.manifest import Device
from gpuprof.profiler.captures import load_analysis
from gpuprof.roofline.analysis import DeviceState
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.gate.held_clock import held_clock_mhz
from gpuprof.roofline.gate.measurement import Measurement, measurement
from gpuprof.roofline.steps.device_state import working_times
from gpuprof.roofline.work.attribution import attribute

RECORDED = Path(__file__).parents[1] / "data" / "captures" / "h200_llama_block"


@pytest.fixture(scope="module")
def recorded() -> Capture:
    """Training steps of a Llama block on an H200."""
    return storage.load(RECORDED)


def measured(capture: Capture) -> Measurement:
    return measurement(capture, analyze(capture))


def on_a_cpu(capture: Capture) -> Capture:
    """The same steps as if a CPU had made them."""
    (process,) = capture.processes
    fingerprint = msgspec.structs.replace(process.fingerprint, devices=(cpu_device(),))
    process = msgspec.structs.replace(process, fingerprint=fingerprint, device=0)
    return capture.with_processes((process,))


def with_delays(capture: Capture, *delays_ns: int) -> Capture:
    """`capture`, whose first timed steps waited so long for their core."""
    timed = capture.steps["phase"] == "timed"
    rows = [int(row) for row in timed.arg_true()]
    values: list[int | None] = [None] * capture.steps.height
    for row, delay in zip(rows, delays_ns, strict=False):
        values[row] = delay
    delays = pl.Series("run_delay_ns", values, dtype=pl.Int64)
    return replace(capture, steps=capture.steps.with_columns(delays))


def test_a_gpu_s_samples_figures_and_counts(recorded: Capture) -> None:
    found = measured(recorded)

    timed = recorded.steps.filter(pl.col("phase") == "timed")
    assert found.samples_ns == tuple(timed["device_ns"])
    assert found.figures["kernel_time"] == pytest.approx(8.8e6, rel=0.1)
    assert 0.5 < found.figures["mfu"] < 0.7
    profiled = recorded.kernels.filter(pl.col("step").is_not_null())
    assert profiled.height == sum(found.kernels.values())
    # Of one of three steps; copies and fills are no kernels, but they are launched.
    assert found.counters["kernels"] == 159 / 3
    assert found.counters["launches"] == 216 / 3
    assert found.counters["copied_bytes"] == 3 * 2**26 / 3
    # What the allocator held is exact, so it is a count and no noisy figure.
    assert "peak_memory" in found.counters
    assert "peak_memory" not in found.figures


def test_without_a_recorded_step_kernels_are_not_counted_as_none(recorded: Capture) -> None:
    unseen = replace(
        recorded,
        steps=recorded.steps.filter(pl.col("phase") != "profiled"),
        kernels=recorded.kernels.clear(),
        launches=recorded.launches.clear(),
    )

    assert "kernels" not in measured(unseen).counters


def test_a_utilization_that_leaves_work_out_is_not_measured() -> None:
    # 760 of 800 products of an H100 were replayed by a CUDA graph.
    figures = measured(storage.load(RECORDED.with_name("h100_lost_cuda_graph"))).figures

    assert not {"mfu", "hfu", "mbu", "bandwidth"} & figures.keys()
    assert figures["kernel_time"] > 0


def test_steps_in_which_the_gpu_slowed_itself_down_do_not_count(recorded: Capture) -> None:
    timed = recorded.steps.filter(pl.col("phase") == "timed").sort("start_ns")
    thermal, power_cap = 0x40, 0x4
    # The host ran ahead in this capture: the device did the steps later than the host marked them.
    worked = working_times(timed)
    assert worked[3][0] > timed["end_ns"][3]
    rows = [
        {"time_ns": worked[0][0] - 1, "throttle_reasons": power_cap},
        {"time_ns": worked[2][0] + 1, "throttle_reasons": thermal},
        {"time_ns": worked[3][1] - 1, "throttle_reasons": 0},
    ]
    samples = recorded.samples.head(1).drop("time_ns", "throttle_reasons")
    made = pl.concat([samples] * 3).with_columns(pl.DataFrame(rows))
    slowed = replace(recorded, samples=made.select(recorded.samples.columns))

    found = measured(slowed)

    # Between two samples the state is that of the one before.
    assert found.discarded == (2, 3)
    assert found.discard_reasons == ("hardware thermal slowdown",)


def test_steps_in_which_others_had_the_core_do_not_count_on_a_cpu(recorded: Capture) -> None:
    length = recorded.steps.filter(pl.col("phase") == "timed")["host_ns"][0]
    waited = with_delays(recorded, length // 4, length // 1000)

    assert measured(on_a_cpu(waited)).discarded == (0,)
    assert measured(on_a_cpu(waited)).discard_reasons == ("other programs had the core",)
    # A GPU goes on with what is queued; its own clock timed it.
    assert measured(waited).discarded == ()


def test_processes_of_other_kernels_have_another_signature(recorded: Capture) -> None:
    renamed = replace(
        recorded, kernels=recorded.kernels.with_columns(pl.col("name").str.replace("nvjet", "x"))
    )
    assert measured(recorded).signature == measured(recorded).signature != ""
    assert measured(renamed).signature != measured(recorded).signature


def test_the_run_delay_of_this_thread_only_grows() -> None:
    delay = RunDelay()
    first = delay.read_ns()
    if first is None:
        pytest.skip("this kernel does not count run delays")
    second = delay.read_ns()
    assert second is not None
    assert 0 <= first <= second


def test_without_a_count_a_run_delay_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuprof.collectors.live.run_delay._FILE", "/absent")
    assert RunDelay().read_ns() is None


def test_the_gap_of_a_gpu_is_that_of_steps_without_the_profiler(recorded: Capture) -> None:
    assert "launch_gap" in measured(recorded).figures
    profiled = replace(recorded, steps=recorded.steps.filter(pl.col("phase") == "profiled"))
    analysis = analyze(profiled)
    assert analysis.split is not None
    assert analysis.split.basis != "timed"
    assert "launch_gap" not in measurement(profiled, analysis).figures
    assert "launch_gap" in measured(on_a_cpu(profiled)).figures


@pytest.mark.parametrize(
    ("changed", "held"),
    [
        # As NVML saw a H200 whose clock was locked below its highest.
        ({}, 1410),
        # The same constant clock where it is the highest, or where the device slowed itself down.
        ({"sm_clock_mhz_minimum": 1980, "sm_clock_mhz_maximum": 1980}, None),
        ({"throttle_reasons": ("software power cap",)}, None),
        ({"throttle_reasons": None}, None),
        ({"sm_clock_mhz_minimum": 1395}, None),
        ({"samples": 2}, None),
    ],
)
def test_a_constant_clock_below_the_highest_is_held(
    changed: dict[str, Any], held: int | None
) -> None:
    state = DeviceState(
        samples=20,
        sm_clock_mhz_median=1410,
        sm_clock_mhz_minimum=1410,
        sm_clock_mhz_maximum=1410,
        throttle_reasons=(),
    )
    device = Device(index=0, kind="cuda", name="H200", maximum_sm_clock_mhz=1980)
    analysis = msgspec.structs.replace(
        load_analysis(RECORDED),
        device=device,
        device_state=msgspec.structs.replace(state, **changed),
    )
    assert held_clock_mhz(analysis) == held


@pytest.mark.parametrize(
    "name", ["h100_attention_base", "h100_attention_head", "h100_cuda_graph", "h200_llama_block"]
)
def test_no_clock_of_the_recorded_gpus_was_held(name: str) -> None:
    assert held_clock_mhz(load_analysis(RECORDED.with_name(name))) is None


def cpu_trace(path: Path, *, before_the_product_us: int) -> Capture:
    """One step of `x @ x` on a CPU that waited so long before it called the product."""
    events = [
        ("user_annotation", "ProfilerStep#1", 0, 2000),
        ("cpu_op", "aten::matmul", 100, before_the_product_us + 60),
        ("cpu_op", "aten::mm", 100 + before_the_product_us, 50),
    ]
    path.write_text(
        json.dumps(
            {
                "schemaVersion": 1,
                "traceEvents": [
                    {"ph": "X", "cat": kind, "name": name, "ts": ts, "dur": dur, "pid": 1, "tid": 1}
                    for kind, name, ts, dur in events
                ],
            }
        )
    )
    return attribute(kineto.read(path))


def test_what_a_busy_machine_makes_long_is_no_other_kernel(tmp_path: Path) -> None:
    quiet, busy = (
        cpu_trace(tmp_path / f"{wait}.json", before_the_product_us=wait) for wait in (5, 500)
    )
    assert (quiet.kernels.height, busy.kernels.height) == (1, 2)

    assert measured(busy).signature == measured(quiet).signature
    assert measured(busy).kernels == {"aten::mm": 1}
    assert measured(busy).counters["kernels"] == 1
