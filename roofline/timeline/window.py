"""The part of a capture that a step's lanes hold."""

from dataclasses import dataclass

import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.roofline.work.attribution import launch_of_kernels


@dataclass(frozen=True)
class Window:
    """From `begin_ns` to `end_ns` on the capture's clock; a step that may begin later."""

    begin_ns: int
    end_ns: int
    step_ns: int

    def of(self, table: pl.DataFrame) -> pl.DataFrame:
        """The rows of `table` that reach into it; what never ended does until its end."""
        ends = pl.col("end_ns").fill_null(self.end_ns)
        inside = (ends > self.begin_ns) & (pl.col("start_ns") < self.end_ns)
        return table.filter(inside).with_columns(end_ns=ends)


def window_of(capture: Capture, span_ns: tuple[int, int]) -> Window:
    """The step at `span_ns`, with the launches of its device work as far as a step's length back.

    Where the device is behind its host, a step's work was launched before it begins.
    """
    start_ns, end_ns = span_ns
    step = Window(start_ns, end_ns, start_ns)
    kernels = capture.kernels.select(
        "start_ns", "end_ns", launched=launch_of_kernels(capture)["launch_ns"]
    )
    launched = step.of(kernels)["launched"].min()
    begin_ns = start_ns
    if isinstance(launched, int):
        begin_ns = max(min(launched, start_ns), 2 * start_ns - end_ns)
    return Window(begin_ns, end_ns, start_ns)
