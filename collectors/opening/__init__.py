"""From paths that a user gives to one Capture: which reader a file needs, what belongs together."""

from gpuprof.collectors.opening.paths import open_trace, open_traces, run_name

__all__ = ["open_trace", "open_traces", "run_name"]
