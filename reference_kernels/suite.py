"""The suite's vocabulary: problems whose work is known exactly, and versions that solve them.

A family (GEMM, attention, ...) is a folder here. Its problem says what is computed, on which
random data, what that costs by definition, and what the right answer is. Each version is a module
of its own with a `prepare` function; `VERSIONS` of the family's `__init__` lists them without
importing them, so that a missing Triton or CUDA takes away its versions and nothing else.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import ClassVar, Final, Literal

import torch

from gpuprof.collectors.distribution import install_command, with_extra
from gpuprof.roofline.cost_models.cost import Flops

DeviceType = Literal["cuda", "cpu"]
# Triton has tensor descriptors, through which TMA loads tiles, from 3.4 on.
Requirement = Literal["triton", "triton>=3.4", "cuda-core"]

TORCH_DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp8": torch.float8_e4m3fn,
    "int8": torch.int8,
}


# Requirement: (a module that only it has, how to get it)
_REQUIREMENTS: Final[Mapping[Requirement, tuple[str, str]]] = {
    "triton": ("triton", "it comes with a CUDA build of torch"),
    "triton>=3.4": (
        "triton.tools.tensor_descriptor",
        "it comes with a CUDA build of torch from 2.8 on",
    ),
    "cuda-core": ("cuda.core", install_command(with_extra("cuda"))),
}


class UnsupportedError(Exception):
    """A version cannot solve this problem on this machine; the text says why, for people."""


@dataclass(frozen=True)
class KnownWork:
    """What a problem costs by its definition.

    FLOPs of the direct algorithm (a multiply-add is two); bytes are compulsory: each distinct
    input element read once, each output element written once.
    """

    flops: tuple[Flops, ...]
    bytes_read: int
    bytes_written: int
    # For a collective: the message's bytes times its bus factor, what each rank's link has to
    # carry (gpuprof.roofline.bus_bandwidth). None: nothing crosses a link.
    bus_bytes: int | None = None


class Problem(ABC):
    """One thing to compute, of one size and dtype, on one device, with its random inputs.

    Inputs are drawn when the problem is made, from `seed`, so a fresh seed is a fresh check.
    """

    family: ClassVar[str]
    # For each type of device, what a bench without --sizes and --dtype runs.
    default_sizes: ClassVar[dict[DeviceType, tuple[str, ...]]]
    default_dtypes: ClassVar[dict[DeviceType, tuple[str, ...]]]
    # What --sizes takes, for help and errors: "MxNxK".
    size_form: ClassVar[str]
    # Whether it is solved by all ranks of torch.distributed's default group together. Each rank
    # then makes its own problem with the same size, dtype and seed.
    needs_group: ClassVar[bool] = False

    def __init__(self, size: str, dtype: str, device: torch.device, *, seed: int = 0) -> None:
        """Raises `ValueError` with a sentence for a size or dtype this family does not have."""
        self.size = size
        self.dtype = dtype
        self.device = device
        self.generator = torch.Generator(device).manual_seed(seed)

    @abstractmethod
    def work(self) -> KnownWork:
        """FLOPs and compulsory bytes of solving the problem once."""

    @abstractmethod
    def reference(self) -> tuple[torch.Tensor, ...]:
        """The right answer in float64, one tensor for each output."""

    @property
    @abstractmethod
    def tolerance(self) -> float:
        """Largest ||out - reference|| / ||reference|| that rounding in this dtype explains."""

    def random(self, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        """Standard normal values, drawn in float32 and rounded to `dtype`."""
        drawn = torch.randn(shape, device=self.device, generator=self.generator)
        return drawn.to(dtype)


@dataclass(frozen=True)
class Prepared:
    """A version made ready for one problem.

    `call` solves the problem once, asynchronously on torch's current stream, writing every element
    of `outputs`, and leaves the inputs as they were. Whatever need not be repeated (compilation,
    autotuning, packing of weights) has been done before.
    """

    call: Callable[[], object]
    outputs: tuple[torch.Tensor, ...]
    # Runs before each call, untimed: puts the inputs where an algorithm that works in place
    # overwrites them. The outputs must still be written by `call` itself, except where they are
    # that place.
    before: Callable[[], object] | None = None
    # What the algorithm executes, where that differs from the problem's definition: Winograd, FFT,
    # padding to tiles, full tiles on a causal diagonal.
    executed_flops: tuple[Flops, ...] | None = None
    # DRAM traffic to expect, where more than compulsory: passes over intermediate arrays, operands
    # read again. None: compulsory.
    expected_bytes_read: int | None = None
    expected_bytes_written: int | None = None
    # Which algorithm or configuration was chosen, for people.
    note: str = ""


@dataclass(frozen=True)
class Version:
    """One way to solve a family's problems; a module with `prepare(problem) -> Prepared`."""

    family: str
    name: str
    # One line for lists: what it shows.
    summary: str
    dtypes: tuple[str, ...]
    devices: tuple[DeviceType, ...] = ("cuda",)
    requires: tuple[Requirement, ...] = ()
    # Least compute capability, for what older GPUs have no instructions for.
    capability: tuple[int, int] = (0, 0)
    # The module with `prepare`, where that is not the one of its name beside the family.
    implementation: str = ""
    # The plug-in that adds it: "toy-gpuprof 1.0".
    plugin: str = ""

    @property
    def label(self) -> str:
        """ "gemm/triton-tiled", as the command line takes it."""
        return f"{self.family}/{self.name}"

    @property
    def module(self) -> str:
        """The module that holds it: gpuprof.reference_kernels.gemm.triton_tiled."""
        beside = f"gpuprof.reference_kernels.{self.family}.{self.name.replace('-', '_')}"
        return self.implementation or beside

    def prepare(self, problem: Problem) -> Prepared:
        """Make ready for `problem`. Raises `UnsupportedError` where that cannot be."""
        reason = self.why_not(problem.dtype, problem.device)
        if reason is not None:
            raise UnsupportedError(reason)
        prepared = import_module(self.module).prepare(problem)
        if not isinstance(prepared, Prepared):
            kind = type(prepared).__name__
            raise TypeError(f"{self.module}.prepare gave {kind}, expected a Prepared")
        return prepared

    def why_not(self, dtype: str, device: torch.device) -> str | None:
        """Why this version has nothing for `dtype` on `device`, or None where it has."""
        if device.type not in self.devices:
            return f"{self.label} needs {' or '.join(self.devices)}"
        if dtype not in self.dtypes:
            return f"{self.label} has no {dtype}: {', '.join(self.dtypes)}"
        if device.type == "cuda":
            found = torch.cuda.get_device_capability(device)
            if found < self.capability:
                needed, has = (".".join(map(str, pair)) for pair in (self.capability, found))
                return f"{self.label} needs compute capability {needed}, this GPU has {has}"
        for requirement in self.requires:
            module, remedy = _REQUIREMENTS[requirement]
            if not _is_importable(module):
                return f"{self.label} needs {requirement}: {remedy}"
        return None


def _is_importable(module: str) -> bool:
    try:
        import_module(module)
    except ImportError:
        return False
    return True


def poison(outputs: tuple[torch.Tensor, ...]) -> None:
    """Fill `outputs` with what no right answer holds, so that an unwritten element shows."""
    for output in outputs:
        output.fill_(float("nan") if output.is_floating_point() else torch.iinfo(output.dtype).min)


def relative_error(outputs: tuple[torch.Tensor, ...], reference: tuple[torch.Tensor, ...]) -> float:
    """The largest ||out - reference|| / ||reference|| over the outputs; NaN where one holds NaN."""
    if len(outputs) != len(reference):
        raise ValueError(f"{len(outputs)} outputs against {len(reference)} reference tensors")
    worst = 0.0
    for output, right in zip(outputs, reference, strict=True):
        if output.shape != right.shape:
            raise ValueError(f"output of shape {tuple(output.shape)}, reference {right.shape}")
        norm = torch.linalg.vector_norm(right).item()
        error = torch.linalg.vector_norm(output.double() - right).item()
        # max() would drop a NaN that is not its first argument.
        ratio = error / norm if norm > 0 else error
        worst = ratio if ratio != ratio or ratio > worst else worst
    return worst
