"""Sample analyses that the report tests share: a GPU training step, a CPU one, an empty one.

Also keeps what is loaded by then out of the garbage collector's sight, before each module's tests.
"""

import gc
from collections import defaultdict

import msgspec
import pytest

from gpuprof.collectors.manifest import Device, Fingerprint, Schedule
from gpuprof.roofline.analysis import (
    Analysis,
    Bottleneck,
    Coverage,
    DeviceState,
    Level,
    RooflinePoint,
    UnmodelledOp,
    Utilization,
)
from gpuprof.roofline.classes import ClassName
from gpuprof.roofline.cost_models.cost import Flops
from gpuprof.roofline.machine.ceilings import Ceiling
from gpuprof.roofline.phase import Phase
from gpuprof.roofline.step_figures import SplitPart, StepSplit, StepTimes

pytest_plugins = ["skips"]

PROFILED_STEPS = 3

_DATASHEET = "NVIDIA H100 datasheet, dense"
_H100_CEILINGS = (
    *(
        Ceiling(
            kind="compute",
            unit=unit,
            precision=precision,
            rate=rate,
            source="datasheet",
            reference=_DATASHEET,
            clock_mhz=1830,
        )
        for unit, precision, rate in (
            ("tensor", "fp8", 1978.9e12),
            ("tensor", "bf16", 989.4e12),
            ("tensor", "fp16", 989.4e12),
            ("tensor", "tf32", 494.7e12),
            ("tensor", "fp64", 67e12),
            ("vector", "fp32", 67e12),
            ("vector", "fp64", 34e12),
        )
    ),
    Ceiling(kind="memory", level="DRAM", rate=3.35e12, source="datasheet", reference=_DATASHEET),
    *(
        Ceiling(
            kind="compute",
            unit=unit,
            precision=precision,
            rate=rate,
            source="measured",
            reference="torch.mm 8192 x 8192 x 8192",
            spread=0.012,
        )
        for unit, precision, rate in (
            ("tensor", "bf16", 758e12),
            ("tensor", "fp16", 704e12),
            ("tensor", "tf32", 385e12),
            ("vector", "fp32", 51e12),
        )
    ),
    Ceiling(
        kind="memory",
        level="DRAM",
        rate=2.98e12,
        source="measured",
        reference="copy of 4 GiB, read and write",
        spread=0.004,
    ),
)

_GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_{}_tilesize128x256x64_warpgroupsize2x1x1_execute"
_ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::{}, "
    "std::array<char*, 3ul> >(int, at::native::{}, std::array<char*, 3ul>)"
)
_REDUCE = (
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps"
    "<float, float, float, float>, unsigned int, float, 4, 4> >(at::native::ReduceOp<float>)"
)
_TOKENS, _WIDTH, _HIDDEN = 4096, 4096, 11008
_SQUARE = 2 * _TOKENS * _WIDTH * _WIDTH
_WIDE = 2 * _TOKENS * _WIDTH * _HIDDEN
_ACTIVATION = _TOKENS * _WIDTH * 2
_HIDDEN_ACTIVATION = _TOKENS * _HIDDEN * 2
_SQUARE_BYTES = (2 * _ACTIVATION, _ACTIVATION)
_WIDE_BYTES = (_ACTIVATION + _WIDTH * _HIDDEN * 2, _HIDDEN_ACTIVATION)
_ATTENTION = 2 * 2 * 32 * 2048 * 2049 // 2 * 2 * 128
_PARAMETERS = 4 * _WIDTH**2 + 3 * _WIDTH * _HIDDEN

# name, op, phase, calls a step, microseconds a call, bf16 matmul FLOPs, fp32 vector FLOPs,
# bytes read, bytes written (None: no model), class
_KernelRow = tuple[str, str, Phase, int, float, int | None, int, int | None, int | None, ClassName]
_H100_KERNELS: tuple[_KernelRow, ...] = (
    (_GEMM.format("tn_n"), "aten::mm", "forward", 4, 212.0, _SQUARE, 0, *_SQUARE_BYTES, "compute"),
    (_GEMM.format("tn_n"), "aten::mm", "forward", 3, 561.0, _WIDE, 0, *_WIDE_BYTES, "compute"),
    (_GEMM.format("nn_n"), "aten::mm", "backward", 4, 221.0, _SQUARE, 0, *_SQUARE_BYTES, "compute"),
    (_GEMM.format("nt_n"), "aten::mm", "backward", 4, 218.0, _SQUARE, 0, *_SQUARE_BYTES, "compute"),
    (_GEMM.format("nn_n"), "aten::mm", "backward", 3, 566.0, _WIDE, 0, *_WIDE_BYTES, "compute"),
    (_GEMM.format("nt_n"), "aten::mm", "backward", 3, 581.0, _WIDE, 0, *_WIDE_BYTES, "compute"),
    (
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3_64x128x128_4x1x1",
        "aten::_scaled_dot_product_cudnn_attention",
        "forward",
        1,
        162.0,
        _ATTENTION,
        3 * 2 * 32 * 2048 * 1024,
        3 * _ACTIVATION,
        _ACTIVATION,
        "compute",
    ),
    (
        "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_7_64x128x128_4x1x1",
        "aten::_scaled_dot_product_cudnn_attention_backward",
        "backward",
        1,
        489.0,
        _ATTENTION * 5 // 2,
        0,
        5 * _ACTIVATION,
        3 * _ACTIVATION,
        "compute",
    ),
    (
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::"
        "(anonymous namespace)::FusedOptimizerTensorListMetadata<4>, at::native::(anonymous "
        "namespace)::FusedAdamMathFunctor<c10::BFloat16, 4, (at::native::ADAM_MODE)1, false>>"
        "(at::native::(anonymous namespace)::FusedOptimizerTensorListMetadata<4>)",
        "aten::_fused_adamw_",
        "optimizer",
        1,
        1102.0,
        0,
        16 * _PARAMETERS,
        8 * _PARAMETERS,
        6 * _PARAMETERS,
        "memory",
    ),
    *(
        (
            _ELEMENTWISE.format(functor, functor),
            op,
            phase,
            calls,
            microseconds,
            0,
            elements * per_element,
            elements * 2 * reads,
            elements * 2,
            "memory",
        )
        for functor, op, phase, calls, microseconds, elements, per_element, reads in (
            ("BinaryFunctor<MulFunctor>", "aten::mul", "forward", 9, 41.0, 2**24, 1, 2),
            ("BinaryFunctor<MulFunctor>", "aten::mul", "backward", 14, 43.5, 2**24, 1, 2),
            ("CUDAFunctor_add", "aten::add", "forward", 6, 40.2, 2**24, 1, 2),
            ("CUDAFunctor_add", "aten::add_", "backward", 9, 41.2, 2**24, 1, 2),
            ("silu_kernel", "aten::silu", "forward", 1, 62.0, 45088768, 4, 1),
            ("silu_backward_kernel", "aten::silu_backward", "backward", 1, 92.0, 45088768, 7, 2),
            ("pow_tensor_scalar", "aten::pow", "forward", 2, 38.0, 2**24, 1, 1),
            ("rsqrt_kernel", "aten::rsqrt", "forward", 2, 2.1, 4096, 1, 1),
            ("neg_kernel", "aten::neg", "forward", 2, 14.2, 2**23, 1, 1),
            ("FillFunctor", "aten::fill_", "backward", 3, 1.6, 1, 0, 0),
            ("CUDAFunctorOnSelf_add", "aten::add", "forward", 3, 1.9, 4096, 1, 1),
            ("direct_copy_kernel", "aten::copy_", "forward", 8, 30.5, 2**24, 0, 1),
            ("direct_copy_kernel", "aten::copy_", "backward", 11, 31.4, 2**24, 0, 1),
            ("sqrt_kernel", "aten::sqrt", "optimizer", 1, 2.0, 512, 1, 1),
        )
    ),
    (_REDUCE, "aten::mean", "forward", 2, 24.3, 0, 2**24, 2**26, 2**14, "memory"),
    (_REDUCE, "aten::sum", "backward", 6, 25.1, 0, 2**24, 2**26, 2**14, "memory"),
    (
        "void (anonymous namespace)::elementwise_kernel_with_index<int, at::native::arange>",
        "aten::arange",
        "forward",
        2,
        1.4,
        0,
        0,
        0,
        2**13,
        "launch",
    ),
    (
        "Memcpy HtoD (Pageable -> Device)",
        "aten::copy_",
        "forward",
        2,
        9.5,
        0,
        0,
        2**16,
        2**16,
        "launch",
    ),
    ("Memset (Device)", "aten::zero_", "backward", 5, 1.2, 0, 0, 0, 2**14, "launch"),
    (
        "void at::native::index_elementwise_kernel<128, 4, gpu_index_kernel>(long, OffsetCalc)",
        "aten::index",
        "forward",
        2,
        5.5,
        0,
        0,
        2**22,
        2**22,
        "small",
    ),
    (
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<Contiguous, 4, 64>(char*)",
        "aten::cat",
        "forward",
        4,
        21.0,
        0,
        0,
        2**24,
        2**24,
        "memory",
    ),
    (
        "triton_rope_backward",
        "mylib::rope_backward",
        "backward",
        2,
        96.0,
        None,
        0,
        None,
        None,
        "unknown",
    ),
    (
        "void cub::DeviceScanKernel<cub::DeviceScanPolicy<long>, long*>(long*, int)",
        "aten::cumsum",
        "forward",
        1,
        4.4,
        None,
        0,
        2**15,
        2**15,
        "unknown",
    ),
    (
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float, float>(float*)",
        "aten::_log_softmax",
        "forward",
        1,
        33.0,
        0,
        5 * 2**23,
        2**25,
        2**25,
        "memory",
    ),
)


def _point(
    level: Level,
    row: _KernelRow,
    name: str,
    total_ns: int,
    ceilings: tuple[Ceiling, ...],
) -> RooflinePoint:
    _, op, phase, calls, microseconds, matmul, vector, read, written, kind = row
    calls *= PROFILED_STEPS
    device_ns = round(calls * microseconds * 1000)
    flops: tuple[Flops, ...] | None = None
    if matmul is not None:
        flops = tuple(
            part
            for part in (
                Flops("matmul", "bf16", calls * matmul),
                Flops("vector", "fp32", calls * vector),
            )
            if part.count
        )
    total_flops = None if flops is None else sum(part.count for part in flops)
    total_bytes = None if read is None or written is None else calls * (read + written)
    roof_ns = roof = None
    if ceilings and total_flops is not None and total_bytes:
        memory = next(c for c in ceilings if c.kind == "memory")
        compute = next(c for c in ceilings if c.precision == ("bf16" if matmul else "fp32"))
        times = {
            c.label: w / c.rate * 1e9 for c, w in ((memory, total_bytes), (compute, total_flops))
        }
        roof = max(times, key=lambda label: times[label])
        roof_ns = round(times[roof])
    seconds = device_ns / 1e9
    gain = None if roof_ns is None else max(0, device_ns - roof_ns) // PROFILED_STEPS
    return RooflinePoint(
        level=level,
        name=name,
        detail="[[4096, 4096], [4096, 4096]] bf16" if matmul else "grid 4096, block 256",
        op=op if level == "kernel" else "",
        phase=phase,
        calls=calls,
        device_ns=device_ns,
        device_fraction=device_ns / total_ns,
        flops=flops,
        bytes_read=None if read is None else calls * read,
        bytes_written=None if written is None else calls * written,
        arithmetic_intensity=(
            total_flops / total_bytes if total_flops is not None and total_bytes else None
        ),
        flops_per_s=None if total_flops is None else total_flops / seconds,
        bytes_per_s=None if total_bytes is None else total_bytes / seconds,
        roof_ns=roof_ns,
        roof=roof or "",
        roof_fraction=None if roof_ns is None else roof_ns / device_ns,
        bottleneck=Bottleneck(kind, f"{op} spends its time on {kind} work.", gain),
        assumptions=("attention is causal and square",) if "scaled_dot" in op else (),
    )


def _points(
    level: Level, rows: tuple[_KernelRow, ...], ceilings: tuple[Ceiling, ...]
) -> tuple[RooflinePoint, ...]:
    total = round(sum(row[3] * row[4] for row in rows) * 1000 * PROFILED_STEPS)
    points = [
        _point(level, row, row[0] if level == "kernel" else row[1], total, ceilings) for row in rows
    ]
    return tuple(sorted(points, key=lambda point: -point.device_ns))


def _sum(
    level: Level, name: str, points: tuple[RooflinePoint, ...], total_ns: int
) -> RooflinePoint:
    device_ns = sum(point.device_ns for point in points)
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for part in (part for point in points for part in point.flops or ()):
        counts[part.kind, part.precision] += part.count
    flops = tuple(Flops(kind, precision, n) for (kind, precision), n in counts.items())  # type: ignore[arg-type]
    read = sum(point.bytes_read or 0 for point in points)
    written = sum(point.bytes_written or 0 for point in points)
    total_flops = sum(counts.values())
    roof_ns = sum(point.roof_ns or 0 for point in points)
    return RooflinePoint(
        level=level,
        name=name,
        calls=PROFILED_STEPS,
        device_ns=device_ns,
        device_fraction=device_ns / total_ns,
        flops=flops,
        bytes_read=read,
        bytes_written=written,
        arithmetic_intensity=total_flops / (read + written),
        flops_per_s=total_flops / device_ns * 1e9,
        bytes_per_s=(read + written) / device_ns * 1e9,
        roof_ns=roof_ns or None,
        roof_fraction=roof_ns / device_ns if roof_ns else None,
        bottleneck=Bottleneck(
            "compute", "71 % of the device time is work that the bf16 tensor roof binds.", 3_400_000
        ),
    )


def pytest_unconfigure() -> None:
    """Let the interpreter end as it would: libraries complain about what is never freed."""
    gc.unfreeze()


@pytest.fixture(scope="module", autouse=True)
def _loaded_modules_are_no_garbage() -> None:
    """A million objects of torch and of all tests, which a search of what is alive goes through.

    Sessions search for optimizers and tensors, and the collector looks at all objects again and
    again: more than a quarter of the time of all tests together.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def training_analysis() -> Analysis:
    """One training step of a Llama-style block on an H100, all parts known."""
    kernels = _points("kernel", _H100_KERNELS, _H100_CEILINGS)
    ops = _points("op", _H100_KERNELS, _H100_CEILINGS)
    device_ns = sum(point.device_ns for point in kernels)
    step = _sum("step", "step", kernels, device_ns)
    ranges = tuple(
        _sum("range", name, tuple(p for p in kernels if p.phase == name), device_ns)
        for name in ("backward", "forward", "optimizer")
    )
    samples = tuple(
        12_900_000 + offset
        for offset in (0, 41_000, -22_000, 18_000, 95_000, -8_000, 12_000, 260_000, 31_000, 5_000)
    )
    work = device_ns // PROFILED_STEPS
    at_roof = sum(p.roof_ns or 0 for p in kernels) // PROFILED_STEPS
    below = {
        kind: sum(p.device_ns - (p.roof_ns or 0) for p in kernels if p.bottleneck.kind == kind)
        // PROFILED_STEPS
        for kind in ("compute", "memory", "small")
    }
    unmodelled = work - at_roof - sum(below.values())
    peak = next(c for c in _H100_CEILINGS if c.precision == "bf16")
    model_flops = 3 * (4 * _SQUARE + 3 * _WIDE) + 7 * _ATTENTION
    return Analysis(
        tool_version="0.1.0",
        source="gpuprof run",
        title="train_transformer.py",
        created_ns=1_795_817_645_000_000_000,
        rank=0,
        world_size=1,
        command=("python", "train_transformer.py", "--batch", "2"),
        ending="finished",
        exit_code=0,
        fingerprint=Fingerprint(
            driver="580.159",
            cuda="13.0",
            torch="2.11.0",
            triton="3.6.0",
            cudnn="9.13.0",
            nccl="2.28.9",
            python="3.12.3",
            platform="Linux-6.8.0-x86_64",
            cpu="Intel Xeon Platinum 8480C",
            cpu_cores=16,
            float32_matmul_precision="highest",
            allow_tf32_matmul=False,
            allow_tf32_cudnn=True,
            environment={"CUDA_VISIBLE_DEVICES": "0", "OMP_NUM_THREADS": "8"},
        ),
        device=Device(
            index=0,
            kind="cuda",
            name="NVIDIA H100 80GB HBM3",
            total_memory_bytes=85_029_158_912,
            multiprocessors=132,
            compute_capability="9.0",
            l2_cache_bytes=52_428_800,
            power_limit_milliwatts=700_000,
            maximum_sm_clock_mhz=1980,
            maximum_memory_clock_mhz=2619,
            mig=False,
        ),
        schedule=Schedule(),
        steps=StepTimes(
            found_by="optimizer steps (AdamW)",
            warmup=3,
            timed=10,
            profiled=PROFILED_STEPS,
            clock="CUDA events",
            definition="timed",
            median_ns=12_915_000,
            minimum_ns=min(samples),
            maximum_ns=max(samples),
            relative_spread=0.0031,
            host_median_ns=12_931_000,
            samples_ns=samples,
            profiled_median_ns=13_702_000,
            profiled_mean_ns=13_702_000,
            profiler_stretch=0.061,
            launches_per_step=139.0,
            tokens_per_s=317_150.6,
        ),
        ceilings=_H100_CEILINGS,
        roof_source="datasheet",
        split=StepSplit(
            step_ns=12_915_000,
            basis="timed",
            parts=(
                SplitPart("roof", at_roof),
                *(SplitPart(kind, nanoseconds) for kind, nanoseconds in below.items()),
                SplitPart("unknown", unmodelled),
                SplitPart("launch", 12_915_000 - work),
            ),
        ),
        utilization=Utilization(
            precision="bf16",
            model_flops=model_flops,
            model_flops_causal=model_flops - 3 * _ATTENTION,
            step_ns=12_915_000,
            flops_per_s=model_flops / 12.915e-3,
            peak=peak,
            mfu=model_flops / 12.915e-3 / peak.rate,
            mfu_causal=(model_flops - 3 * _ATTENTION) / 12.915e-3 / peak.rate,
        ),
        bottleneck=Bottleneck(
            "compute",
            "GEMMs reach 66 % of the bf16 tensor roof and take 71 % of the step's device time.",
            3_012_000,
        ),
        coverage=Coverage(
            device_ns=device_ns,
            with_op=1.0,
            with_flops=0.983,
            with_bytes=0.984,
            unmodelled=(
                UnmodelledOp("mylib::rope_backward", 576_000, 6),
                UnmodelledOp("aten::cumsum", 13_200, 3),
            ),
        ),
        step=step,
        kernels=kernels,
        ops=ops,
        ranges=ranges,
        device_state=DeviceState(
            samples=41,
            sm_clock_mhz_median=1755,
            sm_clock_mhz_minimum=1665,
            sm_clock_mhz_maximum=1980,
            power_watts_median=642.0,
            temperature_celsius_maximum=58,
            memory_used_bytes_maximum=9_400_000_000,
            throttle_reasons=("SW power cap",),
        ),
        peak_memory_bytes=8_700_000_000,
        warnings=("The power limit lowered the SM clock in 12 of 41 samples.",),
    )


@pytest.fixture
def cpu_analysis(training_analysis: Analysis) -> Analysis:
    """The same program on a CPU without ceilings: times, FLOPs and bytes, no roof."""
    rows = tuple((row[1], *row[1:4], row[4] * 800, *row[5:]) for row in _H100_KERNELS)
    kernels, ops = _points("kernel", rows, ()), _points("op", rows, ())
    return msgspec.structs.replace(
        training_analysis,
        device=Device(index=0, kind="cpu", name="Intel Xeon Platinum 8480C", multiprocessors=16),
        fingerprint=Fingerprint(
            torch="2.13.0+cpu", python="3.12.3", cpu_cores=16, torch_threads=16
        ),
        steps=msgspec.structs.replace(training_analysis.steps, clock="host clock"),
        ceilings=(),
        roof_source=None,
        split=None,
        utilization=None,
        bottleneck=Bottleneck("unknown", "No ceiling is known for this device.", None),
        kernels=kernels,
        ops=ops,
        step=None,
        ranges=(),
        device_state=None,
        peak_memory_bytes=None,
        warnings=(),
    )


@pytest.fixture
def bare_analysis() -> Analysis:
    """A script that ended before its first step: nothing is known."""
    return Analysis(
        tool_version="0.1.0",
        source="gpuprof run",
        title="crash.py",
        created_ns=1_795_817_645_000_000_000,
        rank=0,
        world_size=1,
        ending="exception",
        exit_code=1,
        fingerprint=Fingerprint(),
        device=None,
        steps=StepTimes(found_by="", warmup=0, timed=0, profiled=0, clock="host clock"),
        bottleneck=Bottleneck("unknown", "No step was seen.", None),
        coverage=Coverage(device_ns=0),
        warnings=("No step was found before the script ended.",),
    )
