"""Figures and names as people read them: the same in every report.

Unknown (None) becomes `UNKNOWN`. Prefixes are decimal (1 GB = 10^9 bytes), as in data sheets.
Nothing here is clipped: a share over 100 % is printed as it is.
"""

import math
from collections.abc import Iterable
from datetime import datetime, timezone

from gpuprof.collectors.mangled_names import demangled
from gpuprof.collectors.plain_text import THOUSANDS
from gpuprof.collectors.plain_text import printable as printable

UNKNOWN = "-"

_PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_TIME_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"))


def significant(value: float, digits: int = 3) -> str:
    """`value` rounded to `digits` significant digits, without an exponent from 1e-4 upwards.

    Digits before the point are all kept: 12345.6 is "12346".
    """
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    decimals = max(0, digits - 1 - magnitude)
    if magnitude < -4:
        return f"{value:.{digits - 1}e}"
    text = f"{value:.{decimals}f}"
    # Rounding up can add a digit before the point: 9.999 -> 10.00 -> 10.0.
    if decimals and math.floor(math.log10(abs(float(text)))) > magnitude:
        text = f"{value:.{decimals - 1}f}"
    return text


def quantity(value: float | None, unit: str, digits: int = 3) -> str:
    """`value` with a decimal prefix: 9.894e14, "FLOP/s" is "989 TFLOP/s"."""
    if value is None:
        return UNKNOWN
    for factor, prefix in _PREFIXES:
        # A value that would round up to the next prefix takes it: 999.9e9 is 1.00 T.
        if abs(value) >= factor * (1 - 0.5 * 10**-digits):
            return f"{significant(value / factor, digits)} {prefix}{unit}"
    return f"{significant(value, digits)} {unit}"


def joules(amount: float) -> str:
    """Energy: 24.62 is "24.6 J", 0.0031 is "3.10 mJ"."""
    return quantity(amount, "J") if amount >= 1 else f"{significant(amount * 1e3)} mJ"


def flops(count: float | None) -> str:
    """A number of floating-point operations: "829 GFLOP"."""
    return quantity(count, "FLOP")


def flops_rate(flops_per_s: float | None) -> str:
    """A rate of floating-point operations: "758 TFLOP/s"."""
    return quantity(flops_per_s, "FLOP/s")


def byte_count(count: float | None) -> str:
    """An amount of memory or traffic: "134 MB"."""
    return quantity(count, "B")


def byte_rate(bytes_per_s: float | None) -> str:
    """A bandwidth: "2.98 TB/s"."""
    return quantity(bytes_per_s, "B/s")


def duration(nanoseconds: float | None, digits: int = 3) -> str:
    """A time in the unit that suits it: "1.45 ms", "410 µs", "12.0 ns"."""
    if nanoseconds is None:
        return UNKNOWN
    for factor, unit in _TIME_UNITS:
        if abs(nanoseconds) >= factor * (1 - 0.5 * 10**-digits):
            return f"{significant(nanoseconds / factor, digits)} {unit}"
    return f"{significant(nanoseconds, digits)} ns"


def rough_time(seconds: float) -> str:
    """A time that a person waits: "8 s", "2 min", "1 h 20 min"."""
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def milliseconds(nanoseconds: float | None) -> str:
    """A time in ms without its unit, for a column that names it: "1.45", "0.012"."""
    if nanoseconds is None:
        return UNKNOWN
    value = nanoseconds / 1e6
    if 0 < abs(value) < 0.0005:
        return "<0.001"
    return f"{value:.3f}" if abs(value) < 1 else significant(value)


def percent(fraction: float | None) -> str:
    """A share of 1 as a percentage: 0.4321 is "43.2%", 0.0002 is "<0.1%", 1.124 is "112%"."""
    if fraction is None:
        return UNKNOWN
    value = fraction * 100
    if 0 < value < 0.05:
        return "<0.1%"
    return f"{value:.1f}%" if abs(value) < 100 else f"{value:.0f}%"


def intensity(flop_per_byte: float | None) -> str:
    """An arithmetic intensity in FLOP per byte, without the unit: "0.125", "1365"."""
    return UNKNOWN if flop_per_byte is None else significant(flop_per_byte)


def count(value: float | None) -> str:
    """How many, with thousands apart; a mean that is not whole keeps one digit: "1 234.5"."""
    if value is None:
        return UNKNOWN
    text = f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"
    return text.replace(",", THOUSANDS)


def counted(number: int, singular: str, plural: str = "") -> str:
    """ "1 kernel", "2 kernels"; a `plural` that takes more than an s is given."""
    return f"{number} {singular if number == 1 else plural or f'{singular}s'}"


def date(nanoseconds: int) -> str:
    """A moment on the Unix clock, in UTC: "2026-11-27 22:14 UTC"."""
    moment = datetime.fromtimestamp(nanoseconds // 10**9, tz=timezone.utc)
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def joined(parts: Iterable[str]) -> str:
    """Short parts of one line, apart by a middle dot."""
    return " · ".join(part for part in parts if part)


def sentence(text: str) -> str:
    """`text` with a capital first letter and a full stop, as it stands among other sentences.

    A first word that is no plain word, such as aten::mm, keeps its letters.
    """
    text = text.strip()
    first = text.partition(" ")[0]
    if first.rstrip(":,").isalpha():
        text = text[:1].upper() + text[1:]
    return text if not text or text.endswith((".", "!", "?")) else f"{text}."


def step_duration(nanoseconds: int | None) -> str:
    """A step's time, with a digit more than other times: steps differ by less than 1 %."""
    return duration(nanoseconds, digits=4)


def short_name(name: str) -> str:
    """A kernel's name without template arguments, parameters and return type.

    "void at::native::vectorized_elementwise_kernel<4, at::...>(int, ...)" becomes
    "at::native::vectorized_elementwise_kernel". A mangled name is read first; one of another form
    stays as it is.
    """
    recorded, name = name, demangled(name)
    depth = 0
    kept: list[str] = []
    source = _without_unnamed(name)
    for letter in source:
        if letter in "<(":
            depth += 1
        elif letter in ">)":
            depth -= 1
            if depth < 0:
                return name
        elif not depth:
            kept.append(letter)
    short = "".join(kept).removeprefix("void ").strip()
    looks_like_code = "::" in source or name.startswith("void ") or name != recorded
    return short if depth == 0 and short and looks_like_code else name


# Kernels that are only the frame around the one that a template argument names.
_FRAMES = ("cutlass::Kernel", "cutlass::Kernel2", "cutlass::device_kernel")


def kernel_name(name: str) -> str:
    """A kernel's own name without its return type, namespaces, template and parameters.

    >>> kernel_name("void at::native::(anonymous namespace)::multi_kernel<Add<4>, 2>(Add<4>)")
    'multi_kernel'
    """
    bare = _without_unnamed(demangled(name).removeprefix("void "))
    head, template, rest = bare.partition("<")
    if template and head in _FRAMES:
        return kernel_name(rest.partition(">")[0])
    own = head.partition("(")[0].rpartition("::")[2].strip()
    # A name that this leaves nothing of is shown as it is.
    return own or name


def _without_unnamed(name: str) -> str:
    """Unnamed namespaces are a part of the path, written like parameters or template arguments."""
    # As Kineto and as Nsight write them.
    for unnamed in ("(anonymous namespace)::", "<unnamed>::"):
        name = name.replace(unnamed, "")
    return name
