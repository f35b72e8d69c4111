"""When the devices of an analysed rank have no work, and why: what an analysis does not keep."""

import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.idle.culprits import named_pieces
from gpuprof.roofline.idle.pieces import idle_pieces
from gpuprof.roofline.steps.stretch import profiled_stretch
from gpuprof.roofline.work.work import Work


def idle_pieces_of(capture: Capture, work: Work, analysis: Analysis) -> pl.DataFrame | None:
    """`named_pieces` of all profiled steps of an attributed one-rank capture with this analysis.

    None where no step was profiled, or device work was lost.
    """
    behind = analysis.steps.definition == "device period"
    stretch = profiled_stretch(capture, work, behind=behind)
    if stretch is None or work.kernels.is_empty() or work.lost_launches:
        return None
    on_cpu = analysis.device is not None and analysis.device.kind == "cpu"
    return named_pieces(idle_pieces(capture, work, stretch, on_cpu=on_cpu), capture)
