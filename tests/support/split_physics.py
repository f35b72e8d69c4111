"""What holds of every analysis: its split adds up and obeys physics."""

import pytest

from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.machine.ceilings import Roof


def at_peak_ns(analysis: Analysis) -> float:
    """The FLOPs of a step over the peak of the unit that does them; of operators with a roof."""
    source = analysis.roof_source
    if source is None or analysis.split is None:
        return 0.0
    roof = Roof(tuple(c for c in analysis.ceilings if c.source == source), source)
    total = 0.0
    for op in analysis.ops:
        for part in op.flops or () if op.roof_ns is not None else ():
            ceiling = roof.compute_rate(part.kind, part.precision)
            if ceiling is not None and part.kind == "matmul":
                total += part.count / ceiling.rate * 1e9
    return total / max(analysis.steps.profiled, 1)


def check_physics(analysis: Analysis) -> None:
    split = analysis.split
    if split is None:
        assert not analysis.kernels, analysis.bottleneck.evidence
        return
    parts = {part.kind: part.nanoseconds for part in split.parts}
    assert sum(parts.values()) == split.step_ns
    assert min(parts.values()) >= 0
    idle = analysis.idle
    assert idle is not None
    waits = {cause.kind: cause.nanoseconds for cause in idle.causes}
    assert sum(waits.values()) == idle.nanoseconds == split.idle_ns - parts.get("other device", 0)
    assert waits == {kind: parts[kind] for kind in waits}
    each = [sum(part.nanoseconds for part in step) for step in idle.profiled_steps]
    assert sum(each) == pytest.approx(idle.profiled_ns * len(each), abs=len(each))
    if split.basis != "timed":
        # Seen once in all of the host's time, and once in what the device leaves of a step.
        assert idle.profiled_ns == pytest.approx(idle.nanoseconds, rel=0.002, abs=10)
    clipped = [warning for warning in analysis.warnings if "the split leaves that out" in warning]
    assert bool(clipped) == bool(split.clipped_ns)
    if any("compute roof" in warning for warning in analysis.warnings):
        # Said already: peak or count are wrong.
        return
    assert parts.get("roof", 0) >= 0.99 * at_peak_ns(analysis)
    use = analysis.exposed
    assert use is not None
    assert split.busy_ns + split.clipped_ns == use.busy_ns + split.slower_ns
