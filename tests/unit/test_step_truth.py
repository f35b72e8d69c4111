"""Over all captures: a split adds up and obeys physics, and steps are as long as they really were.

What is true of a recording was worked out with Python's json module alone
(benchmarks/step_by_hand.py).
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from recordings import REFUSED, analyses

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.opening import open_traces
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.machine.ceilings import Roof

DATA = Path(__file__).parents[1] / "data"
SHARED = Path(__file__).parents[3] / "shared" / "data"
OWN = (
    *sorted((DATA / "captures").iterdir()),
    *(path for path in sorted((DATA / "kineto").iterdir()) if path.name not in REFUSED),
    *sorted((DATA / "nsys").glob("*.sqlite.gz")),
)
OTHERS = tuple(
    path
    for path in (
        *sorted((SHARED / "public" / "kineto").glob("*.json.gz")),
        *sorted((SHARED / "public" / "nsys").glob("nsightful*.sqlite")),
    )
    # It takes longest, and another recording of the same program is here.
    if "autograd_api" not in path.name
)
RUNS = ("h200x4_ddp", "h200x4_straggler")
needs_shared = pytest.mark.skipif(not OTHERS, reason="the recordings of ../shared are absent")


def analyses_of(capture: Capture) -> Iterator[Analysis]:
    for rank in capture.manifest.ranks:
        yield analyze(capture, rank=rank)


@cache
def run(name: str) -> tuple[Analysis, ...]:
    """The ranks of one run of ../shared."""
    files = sorted((SHARED / "recordings").glob(f"{name}_rank*.json.gz"))
    return tuple(analyses_of(open_traces(files)))


@cache
def single(name: str) -> Analysis:
    """One public trace or recording."""
    files = [SHARED / folder / name for folder in ("public/kineto", "recordings")]
    return analyze(open_traces([file for file in files if file.exists()]))


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


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_every_split_of_our_captures_adds_up_and_check_physics(path: Path) -> None:
    for analysis in analyses(path):
        check_physics(analysis)


@needs_shared
@pytest.mark.parametrize("path", OTHERS, ids=lambda path: path.name)
def test_every_split_of_public_traces_adds_up_and_check_physics(path: Path) -> None:
    for analysis in analyses_of(open_traces([path])):
        check_physics(analysis)


@needs_shared
@pytest.mark.parametrize("name", RUNS)
def test_every_rank_of_a_run_adds_up_and_has_the_same_definition(name: str) -> None:
    for analysis in run(name):
        check_physics(analysis)
        assert analysis.steps.definition == "device period"


@needs_shared
@pytest.mark.parametrize(
    ("name", "milliseconds"), [("h200x4_ddp", 21.3), ("h200x4_straggler", 20.9)]
)
def test_the_ranks_of_a_run_have_the_devices_period(name: str, milliseconds: float) -> None:
    for analysis in run(name):
        assert analysis.steps.length_ns == pytest.approx(milliseconds * 1e6, rel=0.005)


@needs_shared
def test_checkpointed_training_has_the_devices_period() -> None:
    analysis = single("tracelens_mi300_resnet_act_checkpoint.json.gz")
    assert analysis.steps.definition == "device period"
    assert analysis.steps.length_ns == pytest.approx(18.8e6, rel=0.005)
    assert analysis.bottleneck.kind == "communication"


@needs_shared
def test_overlapped_communication_does_not_shrink_what_is_at_the_roof() -> None:
    for analysis in run("h200x4_ddp"):
        assert analysis.split is not None
        assert analysis.split.nanoseconds("roof") >= 5_270_000


@needs_shared
def test_the_profilers_gaps_are_not_the_verdict_of_an_inference() -> None:
    analysis = single("h100_block_infer_fp16.json.gz")
    assert analysis.steps.definition == "host range"
    assert analysis.bottleneck.kind == "compute"
    assert "301 µs" in analysis.bottleneck.evidence
    assert "waits for the host, without the profiler for 16.8 µs to" in analysis.bottleneck.evidence


@needs_shared
def test_a_launch_bound_step_names_its_launches_and_its_item() -> None:
    analysis = single("h100_launch_bound.json.gz")
    assert analysis.idle is not None
    causes = {cause.kind: cause for cause in analysis.idle.causes}
    launches = {one.what: one for one in causes["launch"].culprits}
    # The program (400 operators): for _ in range(200): x = torch.relu(x); x = x + 1
    assert launches["aten::relu"].calls_per_step == launches["aten::add"].calls_per_step == 200
    assert "3.5 ms of it: aten::relu, 200 a step" in analysis.bottleneck.evidence
    item = next(one for one in causes["synchronisation"].culprits if one.what == ".item()")
    assert (item.call, item.operator) == ("cudaStreamSynchronize", "aten::_local_scalar_dense")
    assert item.calls_per_step == 1
    # All of its three calls together take 37.9 us, most of it under the last kernel and the copy.
    assert item.profiled_ns < 37_900 / 3


@needs_shared
@pytest.mark.parametrize(
    ("name", "kind", "share"),
    [
        # Both load in the main process: 103 of 107 ms and 117 ms a batch.
        ("tracelens_mi300_owlv2-large.json.gz", "data loader", 0.64),
        ("tracelens_h100_owlv2-large.json.gz", "data loader", 0.51),
        # cudaFree and cudaMalloc of its first convolutions.
        ("hta_critical_path_alexnet.json.gz", "allocator", 0.66),
    ],
)
def test_what_public_traces_wait_for(name: str, kind: str, share: float) -> None:
    analysis = single(name)
    assert analysis.bottleneck.kind == kind
    assert analysis.split is not None
    assert analysis.split.nanoseconds(kind) / analysis.split.step_ns == pytest.approx(
        share, abs=0.01
    )


@needs_shared
def test_ranks_that_wait_for_one_whose_host_the_profiler_slows_say_so() -> None:
    """Without the profiler a step took 12.4 ms: hardly any rank waited."""
    for analysis in run("h200x4_ddp")[:3]:
        assert analysis.bottleneck.kind == "other rank"
        assert "; without the profiler for 0 to 6." in analysis.bottleneck.evidence
