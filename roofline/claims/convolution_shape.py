"""The size of a 2-D convolution as people write it, and what follows from it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

SIZE_FORM: Final = "NxCxHxW-KxRxS[-sSTRIDE][-pPADDING][-dDILATION][-gGROUPS]"
# Digits are limited, so that no size takes long to work out.
_SIZE = re.compile(
    r"(\d{1,9})x(\d{1,9})x(\d{1,9})x(\d{1,9})-(\d{1,9})x(\d{1,4})x(\d{1,4})"
    r"((?:-[spdg]\d{1,9})*)",
    re.ASCII,
)
_OPTIONS: Final[Mapping[str, int]] = {"s": 1, "p": 0, "d": 1, "g": 1}


@dataclass(frozen=True)
class ConvolutionShape:
    """y[N, K, P, Q] = x[N, C, H, W] * w[K, C / groups, R, S].

    P = floor((H + 2 padding - dilation (R - 1) - 1) / stride) + 1, Q likewise (Dumoulin and Visin
    2016, arXiv 1603.07285; documentation of torch.nn.Conv2d).
    """

    n: int
    c: int
    h: int
    w: int
    k: int
    r: int
    s: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1

    @property
    def p(self) -> int:
        """Rows of the output."""
        return self._outputs(self.h, self.r)

    @property
    def q(self) -> int:
        """Columns of the output."""
        return self._outputs(self.w, self.s)

    @property
    def output_elements(self) -> int:
        """N K P Q."""
        return self.n * self.k * self.p * self.q

    @property
    def weight_elements(self) -> int:
        """K (C / groups) R S."""
        return self.k * self.c // self.groups * self.r * self.s

    @property
    def touched_elements(self) -> int:
        """Elements of x that some window covers: all, unless the stride leaves gaps."""
        rows = self._touched(self.h, self.p, self.r)
        return self.n * self.c * rows * self._touched(self.w, self.q, self.s)

    @property
    def flops(self) -> int:
        """2 N K P Q (C / groups) R S, products with padding's zeros among them."""
        return 2 * self.output_elements * (self.c // self.groups) * self.r * self.s

    def _outputs(self, size: int, kernel: int) -> int:
        covered = self.dilation * (kernel - 1) + 1
        return (size + 2 * self.padding - covered) // self.stride + 1

    def _touched(self, size: int, outputs: int, kernel: int) -> int:
        """Rows (or columns) of x that some window covers.

        Counted from the padded edge, a tap meets rows that all have the same remainder by the
        stride; among those of one remainder it meets `outputs` in a row, and taps follow in order.
        """
        count = 0
        next_free: dict[int, int] = {}
        for tap in range(kernel):
            first, remainder = divmod(tap * self.dilation, self.stride)
            inside = -((remainder - self.padding) // self.stride)
            start = max(first, inside, next_free.get(remainder, 0))
            end = min(first + outputs, (self.padding + size - 1 - remainder) // self.stride + 1)
            count += max(0, end - start)
            next_free[remainder] = first + outputs
        return count


def parse_convolution(text: str) -> ConvolutionShape:
    """The shape of "32x64x56x56-64x3x3-s2-p1" (`SIZE_FORM`). Raises `ValueError`."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no convolution: expected {SIZE_FORM}")
    given = {part[0]: int(part[1:]) for part in match[8].split("-") if part}
    options = {**_OPTIONS, **given}
    sizes = map(int, match.groups()[:7])
    shape = ConvolutionShape(*sizes, *(options[letter] for letter in "spdg"))
    numbers = (shape.n, shape.c, shape.h, shape.w, shape.k, shape.r, shape.s)
    if min(*numbers, shape.stride, shape.dilation, shape.groups) < 1:
        raise ValueError(f"{text!r}: every number but the padding must be at least 1")
    if shape.c % shape.groups or shape.k % shape.groups:
        raise ValueError(f"{text!r}: C and K must be multiples of the groups")
    if shape.p < 1 or shape.q < 1:
        raise ValueError(f"{text!r}: the filter is larger than the padded input")
    return shape
