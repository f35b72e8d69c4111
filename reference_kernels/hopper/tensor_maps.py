"""Tensor maps: what TMA is told of an array, and how much of it is a tile.

Each function gives an int64 tensor of 128 bytes on the device, which a kernel takes by its address.
Tiles are as wide as a row of shared memory, 128 bytes, or narrower, and permuted in it as wgmma
wants. Beyond the array TMA reads zeros and writes nothing.

Source: CUDA driver API, "Tensor Map Object Management".
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from gpuprof.reference_kernels.suite import UnsupportedError

_DATA_TYPES = {
    torch.bfloat16: "BFLOAT16",
    torch.float16: "FLOAT16",
    # One byte is as good as another.
    torch.float8_e4m3fn: "UINT8",
}


def tile_map(tensor: torch.Tensor, tile: Sequence[int], *, read_once: bool = False) -> torch.Tensor:
    """A map of `tensor`, whose last axis is contiguous, in tiles of the given shape.

    What others read too is brought to the L2 in 256 bytes. Of what is `read_once`, at the pace of
    memory, that takes 9 % more of an H200's time.
    """
    from cuda.bindings import driver

    count = tensor.dim()
    # The driver has the fastest axis first, and its stride is left out.
    sizes = [driver.cuuint64_t(size) for size in reversed(tensor.shape)]
    strides = [
        driver.cuuint64_t(stride * tensor.element_size())
        for stride in reversed(tensor.stride()[:-1])
    ]
    box = [driver.cuuint32_t(size) for size in reversed(tile)]
    found = driver.cuTensorMapEncodeTiled(
        _data_type(tensor),
        count,
        tensor.data_ptr(),
        sizes,
        strides,
        box,
        [driver.cuuint32_t(1)] * count,
        *_layout("NONE" if read_once else "L2_256B"),
    )
    return _on_device(found, tensor)


def window_map(
    images: torch.Tensor,
    *,
    taps: tuple[int, int],
    padding: int,
    stride: int,
    dilation: int,
    pixels: int,
) -> torch.Tensor:
    """A map of NHWC `images` [N, C, H, W] in windows: one tap of `pixels` outputs at a time.

    `taps`: the filter's height and width. A tile holds 128 bytes of channels. Raises
    `UnsupportedError` for windows that the driver's one-byte offsets do not hold.
    """
    from cuda.bindings import driver

    batch, channels, height, width = images.shape
    element_bytes = images.element_size()
    upper = [padding - dilation * (taps[1] - 1), padding - dilation * (taps[0] - 1)]
    if min(upper) < -128 or padding > 128:
        raise UnsupportedError("TMA takes windows of at most 128 pixels")
    row_bytes = channels * element_bytes
    strides = (row_bytes, width * row_bytes, height * width * row_bytes)
    found = driver.cuTensorMapEncodeIm2col(
        _data_type(images),
        4,
        images.data_ptr(),
        [driver.cuuint64_t(size) for size in (channels, width, height, batch)],
        [driver.cuuint64_t(step) for step in strides],
        [-padding, -padding],
        upper,
        128 // element_bytes,
        pixels,
        [driver.cuuint32_t(step) for step in (1, stride, stride, 1)],
        *_layout("L2_256B"),
    )
    return _on_device(found, images)


def _data_type(tensor: torch.Tensor) -> Any:
    from cuda.bindings import driver

    name = _DATA_TYPES[tensor.dtype]
    return getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{name}")


def _layout(promotion: str) -> tuple[Any, ...]:
    from cuda.bindings import driver

    promotions = driver.CUtensorMapL2promotion
    return (
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
        getattr(promotions, f"CU_TENSOR_MAP_L2_PROMOTION_{promotion}"),
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )


def _on_device(found: tuple[Any, Any], tensor: torch.Tensor) -> torch.Tensor:
    """Raises `UnsupportedError` with the driver's word where it refused the array."""
    status, described = found
    if status:
        shape = "x".join(map(str, tensor.shape))
        raise UnsupportedError(f"TMA cannot read an array of {shape}: {status.name}")
    words = np.array([int(word) for word in described.opaque], dtype=np.uint64)
    return torch.from_numpy(words.view(np.int64)).to(tensor.device)
