"""The collectives of torch.distributed's own backend, as calls on a problem's buffers."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from gpuprof.reference_kernels.collectives.problem import CollectiveProblem
from gpuprof.reference_kernels.suite import Prepared
from gpuprof.roofline.bus_bandwidth import CollectiveName

# torch 2.13 renamed these and warns of the old names.
_all_gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def prepare_library(
    problem: CollectiveProblem, group: dist.ProcessGroup | None = None, note: str = ""
) -> Prepared:
    """`problem` by the backend of `group`, the default group where that is None.

    Bytes over each rank's links: the message times its bus factor, or more, as the algorithm has
    it. All-reduce and broadcast work in place, so their input is copied to the output before.
    """
    source, output = problem.input, problem.output()
    before = None
    if problem.collective in ("all-reduce", "broadcast"):
        before = _copier(output, source)
    call = library_calls(source, output, group)[problem.collective]
    return Prepared(call, (output,), before=before, note=note)


def library_calls(
    source: torch.Tensor, output: torch.Tensor, group: dist.ProcessGroup | None
) -> dict[CollectiveName, Callable[[], object]]:
    """Each collective from `source` to `output`, which all-reduce and broadcast work on alone."""
    return {
        "all-reduce": lambda: dist.all_reduce(output, group=group),
        "broadcast": lambda: dist.broadcast(output, src=0, group=group),
        "all-gather": lambda: _all_gather(output, source, group=group),
        "reduce-scatter": lambda: _reduce_scatter(output, source, group=group),
        "all-to-all": lambda: dist.all_to_all_single(output, source, group=group),
    }


def _copier(output: torch.Tensor, source: torch.Tensor) -> Callable[[], object]:
    return lambda: output.copy_(source)
