"""Copy and triad on one-dimensional arrays (STREAM: McCalpin, 1995).

copy: out = a. triad: out = a + 3 b. The size names the kernel and the bytes of each array:
"triad:256MiB".
"""

from typing import ClassVar

import torch

from gpuprof.reference_kernels.suite import TORCH_DTYPES, DeviceType, KnownWork, Problem
from gpuprof.roofline.claims.byte_sizes import parse_bytes
from gpuprof.roofline.cost_models.cost import Flops

SCALE = 3.0


class Stream(Problem):
    """One streaming kernel; `b` is None for a copy."""

    family = "stream"
    default_sizes: ClassVar[dict[DeviceType, tuple[str, ...]]] = {
        "cuda": ("copy:256MiB", "triad:256MiB", "copy:1GiB", "triad:1GiB"),
        "cpu": ("copy:16MiB", "triad:16MiB"),
    }
    default_dtypes: ClassVar[dict[DeviceType, tuple[str, ...]]] = {
        "cuda": ("fp32",),
        "cpu": ("fp32",),
    }
    size_form = "copy:BYTES or triad:BYTES, such as triad:256MiB"

    def __init__(self, size: str, dtype: str, device: torch.device, *, seed: int = 0) -> None:
        super().__init__(size, dtype, device, seed=seed)
        self.kernel, _, array = size.partition(":")
        if self.kernel not in ("copy", "triad"):
            raise ValueError(f"{size!r} is no size of {self.family}: give {self.size_form}")
        self.torch_dtype = TORCH_DTYPES[dtype]
        self.elements = parse_bytes(array) // self.torch_dtype.itemsize
        if self.elements < 1:
            raise ValueError(f"{size!r} holds no element of {dtype}")
        self.a = self.random(self.elements, dtype=self.torch_dtype)
        self.b = (
            self.random(self.elements, dtype=self.torch_dtype) if self.kernel == "triad" else None
        )

    def work(self) -> KnownWork:
        """No FLOPs for a copy, two for each element of a triad; each array once."""
        array = self.elements * self.torch_dtype.itemsize
        if self.b is None:
            return KnownWork((), array, array)
        return KnownWork((Flops("vector", self.dtype, 2 * self.elements),), 2 * array, array)

    def reference(self) -> tuple[torch.Tensor, ...]:
        """See `Problem`."""
        a = self.a.double()
        return (a if self.b is None else a + SCALE * self.b.double(),)

    @property
    def tolerance(self) -> float:
        """A copy is exact; a triad rounds its product and its sum, each by half an epsilon."""
        return 0.0 if self.b is None else 2 * torch.finfo(self.torch_dtype).eps
