"""The name of a kernel in parts: library, function, tile, precision, layout, algorithm, ...

The patterns are in `kernel_names.toml`, each with its source. A part that a name does not tell is
absent. Communication is told by the table that the collectors read traces with.
"""

import re
from collections.abc import Mapping
from functools import cache, cached_property
from importlib.resources import files
from typing import Final

import msgspec

from gpuprof.collectors.kernel_kinds import kind_rows
from gpuprof.collectors.mangled_names import demangled
from gpuprof.roofline import dtypes

COMMUNICATION: Final = "communication"
# Texts of names, as people write them.
_WORDS: Final = {
    "fprop": "forward",
    "fwd": "forward",
    "fw": "forward",
    "F": "forward",
    "Fwd": "forward",
    "Fprop": "forward",
    "bprop": "backward",
    "bwd": "backward",
    "bw": "backward",
    "B": "backward",
    "Bwd": "backward",
    "dgrad": "input gradient",
    "bwd_data": "input gradient",
    "Dgrad": "input gradient",
    "wgrad": "weight gradient",
    "Wgrad": "weight gradient",
    "bwd_weight": "weight gradient",
    "wrw": "weight gradient",
    "splitK": "split-K",
    "splitk": "split-K",
    "split_k": "split-K",
    "splitkv": "split over keys",
    "streamK": "stream-K",
    "streamk": "stream-K",
    "stream_k": "stream-K",
    "GSUAMBSK": "stream-K",
    "segment_k_on": "split-K",
    "fft": "FFT",
    "implicit": "implicit GEMM",
    "explicit": "explicit GEMM",
    "precomputed": "implicit GEMM, precomputed indices",
    "igemm": "implicit GEMM",
    "Sp3AsmConv": "Winograd",
    "Pingpong": "ping-pong",
    "Cooperative": "cooperative",
    "OffsetsKernel": "table of offsets",
    "RING": "ring",
    "TREE": "tree",
    "SIMPLE": "Simple",
    "multimem": "reduced in the switch",
    "LDMC": "reduced in the switch",
    "STMC": "spread by the switch",
    "LLMC": "spread by the switch",
    "AGxLL_R": "one-shot",
    "RSxLD_AGxST": "two-shot",
    "RSxTmaLD_AGxTmaST": "two-shot",
    **dict.fromkeys(("one_shot", "oneshot", "oneShot", "OneShot", "1stage"), "one-shot"),
    **dict.fromkeys(("two_shot", "twoshot", "twoShot", "TwoShot", "2stage"), "two-shot"),
    "poi": "pointwise",
    "red": "reduction",
    "per": "reduction in registers",
    "for": "several kernels in one",
}
_TILE_PARTS: Final = ("tile", "cluster")
_NUMBER_PARTS: Final = ("stages", "head_size", "vector_width", "alignment")
_MOST_DIGITS: Final = 6
_PRECISION_PARTS: Final = ("precision", "accumulator", "output")
# Tensile: the index order of an operand whose rows are not contiguous.
_TRANSPOSED: Final = ("lik", "jlk")


class KernelName(msgspec.Struct, frozen=True, kw_only=True):
    """What the name of a kernel tells; "", None or () where it does not."""

    library: str
    # gemm, attention, convolution, ...: the head of kernel_names.toml.
    function: str
    # "silu", "AllReduce", or what a compiler fused.
    operation: str = ""
    # forward, backward, input gradient or weight gradient.
    direction: str = ""
    # How the work is done: split-K, Winograd, flash, ring.
    algorithm: str = ""
    # Of NCCL: LL, LL128, Simple.
    protocol: str = ""
    # sm90, ampere, gfx942.
    architecture: str = ""
    # Of the operands, as devices.toml names them: bf16, tf32, fp8.
    precision: str = ""
    accumulator: str = ""
    output: str = ""
    # Rows and columns of the result in a block, and the depth of one stage; of attention queries,
    # keys and head size.
    tile: tuple[int, ...] = ()
    stages: int | None = None
    # Blocks that share their tiles, along rows and columns.
    cluster: tuple[int, ...] = ()
    # Of a product: TN, NN, NT or TT; of a convolution the order of axes.
    layout: str = ""
    # Of attention: the largest that the kernel is compiled for.
    head_size: int | None = None
    # Elements that one thread loads at once.
    vector_width: int | None = None
    # Rows of the operands begin at a multiple of so many elements.
    alignment: int | None = None
    # Its blocks take tiles of the result until none is left.
    persistent: bool = False
    # It prepares or finishes a product, convolution or attention that other kernels do.
    surrounds: bool = False


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    library: str
    function: str
    pattern: str
    source: str
    surrounds: bool = False
    persistent: bool = False
    codes: str = ""
    constants: dict[str, str] = {}
    parts: dict[str, tuple[str, ...]] = {}


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    codes: dict[str, dict[str, str]]
    kernel: tuple[_Row, ...]


class _Decoder:
    """One row with its patterns compiled."""

    def __init__(self, row: _Row, codes: Mapping[str, str]) -> None:
        self.row = row
        self._pattern = re.compile(row.pattern)
        self._codes = codes

    @cached_property
    def _parts(self) -> dict[str, list[re.Pattern[str]]]:
        # A trace has names of a few rows, and compiling the patterns of all takes a while.
        parts = self.row.parts
        return {part: [re.compile(each) for each in parts[part]] for part in parts}

    def matches(self, name: str) -> bool:
        return self._pattern.search(name) is not None

    def decode(self, name: str) -> KernelName:
        """The parts of `name`, which matches."""
        found = {part: match for part in self._parts if (match := self._first(part, name))}
        for part in (*_TILE_PARTS, *_NUMBER_PARTS):
            if part in found and not all(map(_is_a_size, filter(None, found[part].groups()))):
                del found[part]
        texts = {part: next(filter(None, match.groups()), "") for part, match in found.items()}
        numbers: dict[str, object] = {
            part: tuple(int(group) for group in found[part].groups() if group)
            for part in _TILE_PARTS
            if part in found
        }
        words = {
            part: _WORDS.get(texts[part], texts[part])
            for part in ("operation", "direction", "algorithm", "protocol")
            if part in texts
        }
        constants = self.row.constants
        split = _WORDS.get(texts.get("split_k", ""), "")
        algorithm = ", ".join(filter(None, (constants.get("algorithm", ""), split)))
        parts: dict[str, object] = {
            "library": self.row.library,
            "function": self.row.function,
            "operation": words.get("operation", constants.get("operation", "")),
            "direction": words.get("direction", ""),
            "algorithm": words.get("algorithm", algorithm),
            "protocol": words.get("protocol", ""),
            "architecture": _architecture(texts, constants),
            "layout": _layout(texts),
            "persistent": self.row.persistent,
            "surrounds": self.row.surrounds,
            **{
                part: self._precision(texts[part]) if part in texts else constants.get(part, "")
                for part in _PRECISION_PARTS
            },
            **numbers,
            **{part: int(texts[part]) for part in _NUMBER_PARTS if part in texts},
        }
        return msgspec.convert(parts, KernelName)

    def _first(self, part: str, name: str) -> re.Match[str] | None:
        matches = (pattern.search(name) for pattern in self._parts[part])
        return next((match for match in matches if match), None)

    def _precision(self, text: str) -> str:
        return self._codes.get(text, "")


def _is_a_size(text: str) -> bool:
    """Whether it can be a number of rows, stages or blocks: names may hold anything."""
    return text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS and int(text) > 0


def _architecture(texts: Mapping[str, str], constants: Mapping[str, str]) -> str:
    text = texts.get("architecture", constants.get("architecture", ""))
    if not text.isdigit():
        return text.lower()
    return f"gfx{text}" if len(text) > 2 and text.startswith("9") else f"sm{text}"


def _layout(texts: Mapping[str, str]) -> str:
    if "layout_a" in texts and "layout_b" in texts:
        orders = (texts["layout_a"], texts["layout_b"])
        return "".join("T" if order in _TRANSPOSED else "N" for order in orders)
    return texts.get("layout", "").upper()


@cache
def decode(name: str) -> KernelName | None:
    """What the name of a kernel tells; None where no row of the table knows it."""
    name = demangled(name)
    for decoder in _decoders():
        if decoder.matches(name):
            return decoder.decode(name)
    if any(kind == "collective" and pattern.search(name) for kind, pattern in _kinds()):
        return KernelName(library="", function=COMMUNICATION)
    return None


@cache
def _decoders() -> tuple[_Decoder, ...]:
    text = files("gpuprof.roofline.kernel_names").joinpath("kernel_names.toml").read_bytes()
    table = msgspec.toml.decode(text, type=_Table)
    # Several tables spell the types of C++ like this.
    shared = {**table.codes["letter"], **table.codes["short"], **_cpp_types()}
    return tuple(
        _Decoder(row, {**shared, **table.codes.get(row.codes, {})}) for row in table.kernel
    )


def _cpp_types() -> dict[str, str]:
    spelled = {
        "cutlass::bfloat16_t": "c10::BFloat16",
        "cutlass::half_t": "c10::Half",
        "__nv_bfloat16": "c10::BFloat16",
        "__half": "c10::Half",
        "half": "c10::Half",
        "s1688": "tf32",
    }
    names = {"float", "double", "c10::Half", "c10::BFloat16"}
    found = {name: dtype.precision for name in names if (dtype := dtypes.parse(name))}
    return {
        **found,
        **{name: found.get(torch_name, torch_name) for name, torch_name in spelled.items()},
    }


@cache
def _kinds() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((row.kind, re.compile(row.pattern)) for row in kind_rows())
