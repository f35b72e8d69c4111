"""The part of a capture that a step's lanes hold."""

from dataclasses import dataclass

import polars as pl

from gpuprof.collectors.call_tree.nesting import NONE
from gpuprof.collectors.capture import Capture
from gpuprof.roofline.work.attribution import launch_rows


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
    kernels = capture.kernels.select("start_ns", "end_ns", launch=pl.Series(launch_rows(capture)))
    launches = step.of(kernels)["launch"].to_numpy()
    launched = capture.launches["start_ns"].to_numpy()[launches[launches != NONE]]
    first_ns = int(launched.min(initial=start_ns))
    return Window(max(first_ns, 2 * start_ns - end_ns), end_ns, start_ns)
