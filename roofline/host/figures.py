"""The host's side of the profiled steps."""

from gpuprof.collectors.capture import Capture
from gpuprof.roofline.host.calls import host_calls
from gpuprof.roofline.host.events import collected_garbage, compiling_ns, loader_waits
from gpuprof.roofline.host.queue import launch_queue
from gpuprof.roofline.host_figures import HostFigures
from gpuprof.roofline.step_figures import StepTimes


def host_figures(capture: Capture, times: StepTimes) -> HostFigures:
    """What the host of an attributed one-rank capture did in its profiled steps."""
    calls = host_calls(capture)
    launches, step_ns = times.launches_per_step, times.length_ns
    return HostFigures(
        outside_ns=calls.outside_ns,
        calls=calls.calls,
        other_self_ns=calls.other_self_ns,
        launches_per_s=None if not launches or not step_ns else launches / step_ns * 1e9,
        queue=launch_queue(capture),
        garbage=collected_garbage(capture),
        loaders=loader_waits(capture),
        compiling_ns=compiling_ns(capture),
        compilations=capture.processes[0].compilations,
    )
