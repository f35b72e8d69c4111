"""`gpuprof.benchmark`: times functions of a program by size, from inside it."""

from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from pathlib import Path

from gpuprof.collectors.errors import CommandError
from gpuprof.collectors.files.writing import refuse_existing
from gpuprof.profiler.bench.functions import (
    CallAmount,
    Conditions,
    FunctionsBySize,
    Inputs,
    Size,
    time_functions,
)
from gpuprof.profiler.bench.sizes_output import write_sizes
from gpuprof.roofline.bench.sizes import SizedTime, SizesReport


class TimedFunctions:
    """What functions took by size. `print` shows a table, a notebook the page."""

    def __init__(self, report: SizesReport) -> None:
        self.report = report

    @property
    def times(self) -> tuple[SizedTime, ...]:
        """By size, then by function, as they were given."""
        return self.report.times

    def write(self, path: str | Path, *, force: bool = False) -> None:
        """Write the page (.html), the plots (.svg, .png) or all figures (.json).

        Raises `CommandError` for another ending, and where `path` exists without `force`.
        """
        refuse_existing(Path(path), force=force, option="path")
        write_sizes(self.report, Path(path))

    def __str__(self) -> str:
        from gpuprof.reports.bench.sizes_table import print_sizes
        from gpuprof.reports.console.streams import OutputStream
        from gpuprof.reports.console.terminal import Terminal

        text = StringIO()
        print_sizes(self.report, Terminal(OutputStream(text), plain_width=100))
        return "\n".join(line.rstrip() for line in text.getvalue().strip("\n").splitlines())

    def _repr_html_(self) -> str:
        from markupsafe import Markup

        from gpuprof.reports.bench.sizes_page import render_sizes

        return Markup(
            '<iframe title="gpuprof benchmark" srcdoc="{}" sandbox="allow-scripts"'
            ' style="width: 100%; height: 640px; border: 1px solid #8888"></iframe>'
        ).format(render_sizes(self.report))


def benchmark(
    functions: Callable[..., object] | Mapping[str, Callable[..., object]],
    sizes: Sequence[Size],
    *,
    inputs: Inputs | None = None,
    flops: CallAmount | None = None,
    bytes: CallAmount | None = None,
    device: str | None = None,
    seconds: float = 1.0,
    seed: int = 0,
    title: str = "benchmark",
) -> TimedFunctions:
    """Time one function, or several by name, at each of `sizes`, as `gpuprof bench` times kernels.

        timed = gpuprof.benchmark(
            {"softmax": torch.softmax, "log": torch.log_softmax},
            sizes=[256, 1024, 4096],
            inputs=lambda size: (torch.randn(size, size), 1),
        )
        print(timed)

    `inputs` makes the arguments of a call at a size, once, with `device` as torch's default;
    without it a function takes the size itself. Calls are warmed up, then each is timed alone: on
    a GPU by CUDA events after its L2 cache was flushed, on a CPU by the host's clock. Functions
    take turns, until each median is known to 0.5 % or took `seconds`. `flops` and `bytes` say what
    a call at a size costs; what they leave out is counted from the operators in a profiled call,
    where all of them have a cost model.

    A size is a number, a tuple of numbers or a text. A function that raises has an error in place
    of a time. Raises `CommandError` without functions or sizes, for sizes that are there twice, and
    for a device that is not there.
    """
    by_name = functions if isinstance(functions, Mapping) else {_name_of(functions): functions}
    if seconds <= 0:
        raise CommandError(f"benchmark: seconds is {seconds}; give more than 0")
    subject = FunctionsBySize(title, by_name, tuple(sizes), inputs, flops, bytes)
    return TimedFunctions(time_functions(subject, Conditions(device, seconds, seed)))


def _name_of(function: Callable[..., object]) -> str:
    """What a function is called; an object that can be called, by its class."""
    return getattr(function, "__name__", type(function).__name__)
