"""The script that runs one recorded call."""

import textwrap
from collections.abc import Iterator
from functools import cache
from typing import Final

import jinja2

from gpuprof._version import __version__
from gpuprof.collectors.place_text import place_text
from gpuprof.profiler.repro.autocast import autocast_dtype
from gpuprof.profiler.repro.python_call import PythonCall
from gpuprof.reports.formatting import duration, printable
from gpuprof.reports.shapes import readable_shapes
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.explain.calls import RepeatableCall
from gpuprof.roofline.machine.ceilings import Ceiling

_SEED: Final = 0
_WIDTH: Final = 96


def render_script(analysis: Analysis, recorded: RepeatableCall, call: PythonCall) -> str:
    """Python that needs torch alone."""
    device = analysis.device
    autocast = None if recorded.call is None else autocast_dtype(recorded.call, recorded.casts)
    return _template().render(
        name=recorded.group.name,
        title=_plain(f"{recorded.group.name} of {analysis.title}: {_shapes(recorded)}"),
        facts=[
            line
            for fact in (*_facts(analysis, recorded, call), *_of_autocast(autocast))
            for line in _wrapped(fact)
        ],
        version=__version__,
        flops=_flops(recorded),
        bytes_read=recorded.bytes_read,
        bytes_written=recorded.bytes_written,
        device=repr("" if device is None else device.name),
        device_kind=repr("cpu" if device is not None and device.kind == "cpu" else "cuda"),
        recorded_ns=recorded.median_ns,
        ceilings=_ceilings(recorded),
        operator=call.operator,
        given=[f"{text}," for text, name in call.arguments if not name],
        named=[(name, text) for text, name in call.arguments if name],
        updated=list(call.updated),
        settings=list(_settings(analysis)),
        autocast=autocast,
        seed=_SEED,
    )


def file_name(recorded: RepeatableCall) -> str:
    """Of the script, where none is asked for: "aten-mm.py"."""
    return f"{recorded.group.name.replace('::', '-')}.py"


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("gpuprof.profiler.repro"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        # It is Python and not a page; what a program named is in comments, and made plain.
        autoescape=False,
    )
    return environment.get_template("script.py.jinja")


def _facts(analysis: Analysis, recorded: RepeatableCall, call: PythonCall) -> Iterator[str]:
    device = "an unknown device" if analysis.device is None else analysis.device.name
    torch = analysis.fingerprint.torch
    with_torch = f", torch {torch}" if torch else ""
    number = f"{recorded.group.calls} calls" if recorded.group.calls > 1 else "1 call"
    yield (
        f"Recorded on {device}{with_torch}: {number} in the profiled steps, "
        f"{duration(recorded.median_ns)} of device time each in the median."
    )
    if len(recorded.called_by) > 1:
        yield f"Called by {' > '.join(recorded.called_by[:-1])}."
    place = place_text(recorded.file, recorded.line)
    where = ", ".join(part for part in (place, recorded.module) if part)
    if where:
        yield f"In the program: {where}."
    if call.defaults:
        yield f"Not recorded, so left to the default: {', '.join(call.defaults)}."


def _of_autocast(dtype: str | None) -> Iterator[str]:
    if dtype is not None:
        yield (
            f"It ran under autocast to {dtype}. What the program cast once, such as weights, is "
            "cast in each call here."
        )


def _settings(analysis: Analysis) -> Iterator[str]:
    """What the program had set: the unit that float32 products run on, and threads of a CPU."""
    recorded, device = analysis.fingerprint, analysis.device
    if recorded.float32_matmul_precision is not None:
        yield f"torch.set_float32_matmul_precision({recorded.float32_matmul_precision!r})"
    if recorded.allow_tf32_cudnn is not None:
        yield f"torch.backends.cudnn.allow_tf32 = {recorded.allow_tf32_cudnn}"
    if recorded.torch_threads is not None and device is not None and device.kind == "cpu":
        yield f"torch.set_num_threads({recorded.torch_threads})"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(_plain(text), _WIDTH, break_long_words=False, break_on_hyphens=False)


def _plain(text: str) -> str:
    """What may stand in a docstring, whatever the program called its files and modules."""
    return printable(text).replace("\\", "/").replace('"', "'")


def _shapes(recorded: RepeatableCall) -> str:
    return readable_shapes(recorded.group.detail, recorded.group.name) or "no tensors"


def _flops(recorded: RepeatableCall) -> str:
    if recorded.flops is None:
        return "None"
    return repr({f"{part.precision} {part.kind}": part.count for part in recorded.flops})


def _ceilings(recorded: RepeatableCall) -> str:
    if not recorded.roof.complete:
        return "()"
    known = (each for each in (recorded.roof.compute, recorded.roof.memory) if each is not None)
    rows = "".join(
        f"\n    ({each.ceiling.label!r}, {round(each.ceiling.rate)}, {_unit(each.ceiling)!r}, "
        f"{round(each.ns)}),"
        for each in known
    )
    return f"({rows}\n)" if rows else "()"


def _unit(ceiling: Ceiling) -> str:
    return "FLOP/s" if ceiling.kind == "compute" else "B/s"
