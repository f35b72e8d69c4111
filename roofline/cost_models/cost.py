"""What one operator call costs by its definition: operations and compulsory traffic."""

from typing import Final, Literal

import msgspec

# matmul: products summed along an axis (GEMM, convolution, attention), which run on tensor units
# where the device has them for that precision. vector: everything else.
FlopKind = Literal["matmul", "vector"]


class Flops(msgspec.Struct, frozen=True):
    """`count` floating-point operations; a multiply-add counts as two.

    `precision` is one of fp64, fp32, tf32, fp16, bf16, fp8, fp4, int8, int4, integer.
    """

    kind: FlopKind
    precision: str
    count: int


class MatrixProduct(msgspec.Struct, frozen=True):
    """[rows, inner] @ [inner, columns], `batch` times with another right operand each.

    The sizes are those of the operands as they are stored.
    """

    rows: int
    inner: int
    columns: int
    batch: int = 1


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a call's work that one of its kernels does."""

    # A regular expression for the kernel's name, found anywhere in it, in any case.
    kernel: str
    flops: tuple[Flops, ...] | None
    bytes_read: int | None
    bytes_written: int | None


class PeakTime(msgspec.Struct, frozen=True, kw_only=True):
    """How long a call would take if what it used most of a resource ran at its peak."""

    resource: Literal["compute", "memory"]
    # What was used, for people: "SM throughput".
    name: str
    ns: float


# Assumptions of models that leave out what may take most of the time: such calls may be far below
# their roof with nothing that could be faster.
UNCOUNTED_RANDOM: Final = "random numbers are not counted as operations"
UNCOUNTED_COMPARISONS: Final = "comparisons of a sort are not counted"
UNCOUNTED: Final = frozenset({UNCOUNTED_RANDOM, UNCOUNTED_COMPARISONS})


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """FLOPs and bytes of one call.

    Bytes are compulsory traffic: each distinct input element read once, each output written once.
    None means unknown, () means none are done. `assumptions` are short sentences about what the
    call did not say.

    A model of products says what of `bytes_read` is weights and what keys and values, 0 where
    there are none: MBU needs both. While one of them is None, and the call has matmul FLOPs, the
    step's MBU is unknown. Models of other work need not say.
    """

    flops: tuple[Flops, ...] | None
    bytes_read: int | None
    bytes_written: int | None
    assumptions: tuple[str, ...] = ()
    # Matmul FLOPs under the convention that counts causal attention in full (PaLM, torch), where
    # that differs from `flops`, which counts the pairs that the mask keeps. Both include the
    # scores that a backward recomputes, as torch's counter does and PaLM's formula does not.
    full_attention_flops: int | None = None
    # Of the matmul operations in `flops`, those that repeat work of the forward pass: the scores
    # that a fused attention backward recomputes. HFU counts them, MFU does not.
    recomputed_flops: int = 0
    # Weights: the matrix that activations are multiplied with, and its scales.
    weight_bytes: int | None = None
    # Keys and values of attention, in one kernel or written out in batched products.
    key_value_bytes: int | None = None
    # The one product that the call does, for the closed form to find the parameter that it uses.
    product: MatrixProduct | None = None
    # Of calls that do their work in several kernels, what each of them does; () for all others.
    shares: tuple[Share, ...] = ()
    # Read plus written, where only that is known: hardware counters may not tell them apart.
    undivided_bytes: int | None = None
    # Where hardware counters tell these and not the work: they are its roof then.
    peak_times: tuple[PeakTime, ...] = ()

    def matmul_flops(self) -> int | None:
        """Matmul operations as `flops` counts them."""
        if self.flops is None:
            return None
        return sum(part.count for part in self.flops if part.kind == "matmul")

    def read_of_model(self, *, multiplies: bool) -> tuple[int | None, int | None]:
        """`weight_bytes` and `key_value_bytes`; what a model left open is 0 without products.

        `multiplies`: whether the call is taken to do products where its FLOPs are unknown.
        """
        matmul = self.matmul_flops()
        unsaid = None if matmul or (matmul is None and multiplies) else 0
        return (
            unsaid if self.weight_bytes is None else self.weight_bytes,
            unsaid if self.key_value_bytes is None else self.key_value_bytes,
        )

    def bytes_moved(self) -> int | None:
        """Bytes read plus bytes written, or None where that is unknown."""
        if self.bytes_read is None or self.bytes_written is None:
            return self.undivided_bytes
        return self.bytes_read + self.bytes_written
