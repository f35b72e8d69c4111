"""The advice on one analysed step, from all that is known to cost it time."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from gpuprof.roofline.advice.advise import advise, gain_of_class
from gpuprof.roofline.advice.bfloat16 import bfloat16_products
from gpuprof.roofline.advice.candidate import Candidate, Gain
from gpuprof.roofline.advice.device_work import below_the_roof
from gpuprof.roofline.advice.epilogues import epilogues
from gpuprof.roofline.advice.fusion import fusions
from gpuprof.roofline.advice.links import MANY_MESSAGES, call_waits, exposed_links
from gpuprof.roofline.advice.projections import projections
from gpuprof.roofline.advice.recomputation import recomputation
from gpuprof.roofline.advice.sequence import stream_order
from gpuprof.roofline.advice.stragglers import late_ranks
from gpuprof.roofline.advice.waiting import launches_of_fewer, waiting
from gpuprof.roofline.advice.without_cause import Step
from gpuprof.roofline.advice_figures import Advice
from gpuprof.roofline.analysis import Bottleneck, RooflinePoint, Transfer
from gpuprof.roofline.classes import OTHER_RANK
from gpuprof.roofline.host_figures import HostFigures
from gpuprof.roofline.idle_figures import IdleTime
from gpuprof.roofline.machine.ceilings import Roof
from gpuprof.roofline.points.classify import WorkKey
from gpuprof.roofline.rank_figures import RanksAnalysis
from gpuprof.roofline.step_figures import (
    Exposed,
    StepSplit,
    StepTimes,
    has_no_room_to_wait,
    is_another_step,
)
from gpuprof.roofline.steps.waiting_for_a_core import is_much
from gpuprof.roofline.work.work import Work


@dataclass(frozen=True)
class StepAdvice:
    """All candidates of one step."""

    candidates: tuple[Candidate, ...]
    # The same where each change is of one class only: fewer messages also need fewer launches.
    of_classes: tuple[Candidate, ...]
    times: StepTimes
    # None where the step has no split, and so no advice.
    step_ns: int | None

    def ranked(self) -> tuple[Advice, ...]:
        """What to change, most gain first."""
        return () if self.step_ns is None else advise(self.candidates, self.times, self.step_ns)

    def with_gain(self, bottleneck: Bottleneck) -> Bottleneck:
        """`bottleneck` with what the changes that are known for its class would gain.

        What it loses to the roof is more than work of its kind can come near.
        """
        if self.step_ns is None or bottleneck.gain_ns is None:
            return bottleneck
        gain = gain_of_class(self.of_classes, bottleneck.kind, self.times, self.step_ns)
        if gain is None:
            return bottleneck
        return Bottleneck(
            bottleneck.kind, bottleneck.evidence, gain.ns, (gain.least_ns, gain.most_ns)
        )


def step_advice(
    work: Work,
    ops: Sequence[tuple[WorkKey, RooflinePoint]],
    roof: Roof | None,
    *,
    use: Exposed | None,
    transfers: Sequence[Transfer],
    split: StepSplit | None,
    idle: IdleTime | None,
    host: HostFigures | None,
    times: StepTimes,
    on_cpu: bool,
    torch_settings: Mapping[str, str] | None,
    ranks: RanksAnalysis | None = None,
) -> StepAdvice:
    """What could be changed in the step that `split` divides.

    `ops` are the points of all `work`, with their keys; `torch_settings` those that are not at
    their default, None where nobody read them; `ranks` what all ranks of the job say together.
    """
    if split is None or use is None or is_another_step(split, times):
        return StepAdvice((), (), times, None)
    order = stream_order(work)
    of_device: Iterable[Candidate] = chain(
        fusions(work, order),
        epilogues(work, order),
        projections(work, roof),
        recomputation(work),
        bfloat16_products(work, ops, roof),
    )
    busy = on_cpu and is_much(times.waiting_fraction)
    if not busy:
        # Where other programs have the cores, nothing tells how fast the work itself is.
        by_heuristic = torch_settings is not None and "cudnn.benchmark" not in torch_settings
        below = below_the_roof(work, ops, roof, by_heuristic=by_heuristic and not on_cpu)
        of_device = chain(below, of_device)
    if on_cpu and split.basis == "timed":
        of_device = _as_unprofiled(of_device, times)
    shortest_ns = split.step_ns
    if times.timed and times.median_ns is not None:
        shortest_ns = min(shortest_ns, times.median_ns)
    if has_no_room_to_wait(times, use):
        idle = None
    replays = bool(work.kernels["replay"].is_not_null().any())
    step = None if idle is None else Step(idle, times, on_cpu)
    own = (*of_device, *late_ranks(ranks, split.nanoseconds(OTHER_RANK)))

    def with_launches(launches: Gain) -> tuple[Candidate, ...]:
        """All candidates, where fewer messages gain `launches` too."""
        links = tuple(
            exposed_links(
                work,
                use,
                transfers,
                [point for _, point in ops],
                call_waits(use, split, times),
                launches,
            )
        )
        fewer = launches.ns > 0 and any(each.finding == MANY_MESSAGES for each in links)
        waits = () if step is None else waiting(step, host, replays=replays, fewer=fewer)
        # What others that have the core take looks like Python of the program's own.
        said = (each for each in waits if not (busy and each.finding == "host work"))
        return (*own, *links, *said)

    nothing = Gain(0, 0, 0)
    of_classes = with_launches(nothing)
    launches = nothing if step is None else launches_of_fewer(step)
    candidates = with_launches(launches) if launches.ns else of_classes
    return StepAdvice(candidates, of_classes, times, shortest_ns)


def _as_unprofiled(candidates: Iterable[Candidate], times: StepTimes) -> Iterable[Candidate]:
    """A CPU's work is as much longer under the profiler as its steps are."""
    ratio = 1.0
    if times.median_ns and times.profiled_mean_ns:
        ratio = min(1.0, times.median_ns / times.profiled_mean_ns)
    for each in candidates:
        gain = each.gain
        scaled = (round(ns * ratio) for ns in (gain.ns, gain.least_ns, gain.most_ns))
        yield replace(each, gain=Gain(*scaled))
