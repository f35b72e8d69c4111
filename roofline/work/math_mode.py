"""The units that float32 products ran on."""

from typing import Final

from gpuprof.collectors.manifest import Device, ProcessInfo
from gpuprof.roofline.cost_models.call import MathMode
from gpuprof.roofline.machine.devices import find_spec

# CUDA C++ Programming Guide, Compute Capabilities: tensor cores multiply TF32 from 8.0 on.
_FIRST_TF32_CAPABILITY: Final = 8


def math_mode(device: Device | None, process: ProcessInfo) -> MathMode:
    """What `process` allowed for float32 products; all False where its device has no TF32 units."""
    if device is None or not has_tf32(device):
        return MathMode(tf32_units=False)
    return MathMode(
        tf32_matmul=process.fingerprint.allow_tf32_matmul,
        tf32_convolution=process.fingerprint.allow_tf32_cudnn,
    )


def has_tf32(device: Device) -> bool:
    """Whether `device` may have TF32 units: only NVIDIA GPUs do, by capability or by datasheet."""
    if device.kind != "cuda":
        return False
    major = (device.compute_capability or "").partition(".")[0]
    if major.isdecimal():
        return int(major) >= _FIRST_TF32_CAPABILITY
    spec = find_spec(device).spec
    return spec is None or any("tf32" in peaks.tflops for peaks in spec.peaks)
