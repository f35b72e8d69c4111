"""The units that float32 products ran on."""

from gpuprof.collectors.manifest import Device, ProcessInfo
from gpuprof.roofline.cost_models.call import MathMode


def math_mode(device: Device | None, process: ProcessInfo) -> MathMode:
    """The units that float32 products of `process` ran on."""
    # TF32 exists on NVIDIA GPUs only; the flags mean nothing elsewhere.
    if device is None or device.kind != "cuda":
        return MathMode()
    return MathMode(
        tf32_matmul=process.fingerprint.allow_tf32_matmul is True,
        tf32_convolution=process.fingerprint.allow_tf32_cudnn is True,
    )
