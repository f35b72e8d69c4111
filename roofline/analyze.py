"""Capture -> Analysis: the one way from what happened to what it means."""

from collections.abc import Sequence
from functools import partial

import msgspec

from gpuprof._version import __version__
from gpuprof.collectors import garbage_collector
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.manifest import Device
from gpuprof.collectors.plugins import noted_problems
from gpuprof.collectors.query_thread import on_query_thread
from gpuprof.roofline.advice.binding import binding
from gpuprof.roofline.advice.of_step import step_advice
from gpuprof.roofline.advice.stragglers import with_late_ranks
from gpuprof.roofline.analysis import Analysis, Bottleneck, DeviceState, RooflinePoint
from gpuprof.roofline.asked_plugins import installed_plugins
from gpuprof.roofline.checklist.find import kernel_checklists
from gpuprof.roofline.classes import UNKNOWN
from gpuprof.roofline.computing_points import computing_points
from gpuprof.roofline.doubts import (
    of_timed_steps,
    of_unequal_steps,
    on_meta,
    over_roof,
    sentences,
    without_mbu,
)
from gpuprof.roofline.explain.explain import explained_largest
from gpuprof.roofline.host.figures import host_figures
from gpuprof.roofline.idle.evidence import with_culprit
from gpuprof.roofline.idle.idle_time import find_idle, idle_time
from gpuprof.roofline.machine.ceilings import Roof, preferred_source
from gpuprof.roofline.measured.activity import ModelledStep, activity
from gpuprof.roofline.measured.alarms import discrepancies
from gpuprof.roofline.measured.counted_ceilings import with_counted_ceilings
from gpuprof.roofline.measured.counted_costs import counted_work
from gpuprof.roofline.measured.measured_work import measured_work
from gpuprof.roofline.measured.step_readings import step_readings
from gpuprof.roofline.memory.use import memory_use
from gpuprof.roofline.modules import module_tree
from gpuprof.roofline.plugin_uses import plugins_of
from gpuprof.roofline.points.bottleneck import classify_step
from gpuprof.roofline.points.coverage import coverage
from gpuprof.roofline.points.gains import in_an_unprofiled_step, with_gains_of_a_step
from gpuprof.roofline.points.kernel_points import keyed_kernel_points
from gpuprof.roofline.points.points import (
    Machine,
    keyed_op_points,
    step_point,
)
from gpuprof.roofline.points.process_roofs import ceilings_of, device_of, roofs_of_devices
from gpuprof.roofline.points.range_points import range_points
from gpuprof.roofline.points.range_times import range_times
from gpuprof.roofline.points.transfers import TRANSFER_KEYS, on_one_host, transfers
from gpuprof.roofline.points.verdicts import work_verdicts
from gpuprof.roofline.points.work_readings import WorkReadings, clock_of
from gpuprof.roofline.ranks.explained_stragglers import late_ns
from gpuprof.roofline.ranks.instances import instances, waits_of
from gpuprof.roofline.ranks.join import join
from gpuprof.roofline.ranks.links import link_figures
from gpuprof.roofline.ranks.nccl import nccl_figures
from gpuprof.roofline.ranks.parallelism.find import find_parallelism
from gpuprof.roofline.ranks.recorder import recorder_findings
from gpuprof.roofline.ranks.summarise import summaries_of_job
from gpuprof.roofline.ranks.summary import RankSummary
from gpuprof.roofline.settings.find import calls_of_profiled_steps, health_of, settings_of
from gpuprof.roofline.settings.known import KnownOfStep
from gpuprof.roofline.slow_steps.find import slow_steps
from gpuprof.roofline.step_figures import StepSplit, StepTimes, has_no_room_to_wait
from gpuprof.roofline.steps.device_readings import device_readings
from gpuprof.roofline.steps.device_state import device_state, profiled_clock_mhz
from gpuprof.roofline.steps.energy import energy_of_steps
from gpuprof.roofline.steps.equal_work import unequal_work
from gpuprof.roofline.steps.exposure import critical, device_uses
from gpuprof.roofline.steps.overlap_slowdown import (
    slowed_by_communication,
    with_slowdown_of_step,
    with_slowdowns,
)
from gpuprof.roofline.steps.slower_device import slower_by_ns, slower_warning
from gpuprof.roofline.steps.split import clip_warning, split_step
from gpuprof.roofline.steps.step_times import step_times
from gpuprof.roofline.steps.stretch import (
    device_runs_behind,
    longest_gap_of_others_ns,
    profiled_stretch,
    step_ends,
)
from gpuprof.roofline.timeline.find import find_timeline
from gpuprof.roofline.timeline.ranks import JobRanks
from gpuprof.roofline.totals.totals import totals
from gpuprof.roofline.utilization.closed_form import closed_form, declared_tokens
from gpuprof.roofline.utilization.utilization import utilization
from gpuprof.roofline.utilization.weight_traffic import weight_traffic
from gpuprof.roofline.work.attribution import attribute
from gpuprof.roofline.work.impossible import impossible
from gpuprof.roofline.work.math_mode import math_mode
from gpuprof.roofline.work.op_tree import range_members
from gpuprof.roofline.work.replayed_graphs import replayed_graphs
from gpuprof.roofline.work.transfers import RankWaits
from gpuprof.roofline.work.work import find_work


@on_query_thread
@garbage_collector.paused()
def analyze(
    capture: Capture, *, rank: int | None = None, summaries: Sequence[RankSummary] | None = None
) -> Analysis:
    """What one rank of `capture` means; the first rank unless another is given.

    `summaries` are those of all ranks of the job, where `capture` does not hold them all. Raises
    `ValueError` for a rank that the capture does not hold.
    """
    rank = capture.manifest.ranks[0] if rank is None else rank
    capture = attribute(capture)
    of_rank = capture.rank(rank)
    process = of_rank.processes[0]
    device = device_of(process)
    work = find_work(of_rank, math_mode(device, process), counted_work(of_rank))
    if summaries is None:
        summaries = summaries_of_job(capture, {rank: work})
    ends, matched = step_ends(capture), instances(summaries)
    stuck, nccl = recorder_findings(summaries), nccl_figures(summaries)
    all_ranks = join(summaries, matched)
    waits = RankWaits(waits_of(matched, rank), late_ns(all_ranks, rank))
    job = JobRanks(capture, matched, all_ranks)
    others_gap_ns = longest_gap_of_others_ns(capture, rank, ends)
    capture, work = of_rank, work.with_waits(waits)
    ceilings, notes = ceilings_of(device, process)
    # The counters' own durations are at the clocks that they tell; a trace's are not.
    if capture.manifest.source == "ncu":
        ceilings = with_counted_ceilings(ceilings, capture.counters)
    roof_source = preferred_source(ceilings)
    roof = None
    if roof_source is not None:
        roof = Roof(tuple(c for c in ceilings if c.source == roof_source), roof_source)
    state = _device_state(capture, device)
    one_host = on_one_host(process.world_size, process.fingerprint)
    readings = device_readings(capture.samples, None if device is None else device.index)
    machine = Machine(
        device,
        roof,
        clock_of(state),
        one_host,
        ceilings,
        process.link_calibration,
        None if device is None else WorkReadings(readings, device.index),
    )

    verdicts = work_verdicts(work, machine)
    on_cpu = device is not None and device.kind == "cpu"
    stretch = profiled_stretch(capture, work, behind=device_runs_behind(ends))
    uses = () if stretch is None else device_uses(work, stretch)
    use = critical(uses)
    times = step_times(capture, stretch)
    unequal = unequal_work(
        # Which launches were counted, or are like those, tells nothing of a step.
        work.modelled(),
        times,
        capture.steps,
        busy_ns=0 if use is None else use.needed_ns,
        clock_ratio=_clock_ratio(state),
    )
    times = msgspec.structs.replace(times, unequal=unequal or "")
    # Before the idle time is held, beside which what this needs would be the peak.
    host = host_figures(capture, times)
    in_ranges = tuple(range_members(capture, work.kernels["kernel_row"]))
    keyed = keyed_op_points(work, machine, verdicts)
    keyed_kernels = keyed_kernel_points(work, machine, verdicts)
    ops, kernels, ranges = (
        with_gains_of_a_step(points, times, on_cpu=on_cpu)
        for points in (
            tuple(point for _, point in keyed),
            tuple(point for _, point in keyed_kernels),
            range_points(capture, work, in_ranges, machine, verdicts),
        )
    )
    slowed = slowed_by_communication(work)
    kernels = with_slowdowns(kernels, slowed)
    # A step's figures are of all its device work, or they are none.
    complete = work.lost_launches == 0
    split = None
    local: tuple[RooflinePoint, ...] = ()
    if complete and stretch is not None and use is not None:
        # Before the idle time, as above.
        local = computing_points(work, stretch, use.device, machine, verdicts)
    seen = find_idle(capture, work, stretch, on_cpu=on_cpu) if complete else None
    if seen is not None and stretch is not None and use is not None:
        split = split_step(
            times,
            stretch,
            use,
            local,
            waiting=seen.waiting,
            slower_ns=slower_by_ns(times, stretch, use, state=state, device=device),
            on_cpu=on_cpu,
        )
    idle = idle_time(seen, split, on_cpu=on_cpu)
    modelled = work.modelled()
    traffic = weight_traffic(modelled)
    shares = None
    if complete and stretch is not None:
        roofs = roofs_of_devices(process, uses, machine, roof_source)
        shares = utilization(modelled, times, roofs, traffic, profiled=stretch.definition)
    bottleneck = in_an_unprofiled_step(
        with_culprit(
            _classified(split, times, ops, roof, complete=complete, others_gap_ns=others_gap_ns),
            idle,
        ),
        times,
        on_cpu=on_cpu,
    )
    crossed = tuple(transfers(work.kernels, TRANSFER_KEYS, machine.links))
    advice = step_advice(
        work,
        tuple(zip((key for key, _ in keyed), ops, strict=True)),
        roof,
        use=use,
        transfers=crossed,
        split=split,
        idle=idle,
        host=host,
        times=times,
        on_cpu=on_cpu,
        torch_settings=process.fingerprint.torch_settings,
        ranks=all_ranks,
    )
    bottleneck = with_late_ranks(bottleneck, all_ranks)
    bottleneck = with_slowdown_of_step(advice.with_gain(bottleneck), slowed, times.length_ns)
    health = health_of(process, device)
    covered = coverage(ops, kernels, work)
    whole = step_point(ops, machine, steps=work.steps, bottleneck=bottleneck)
    measured, counted = measured_work(capture, work, device), None
    if device is not None:
        counted = activity(
            capture,
            ModelledStep(
                times=times,
                ceilings=ceilings,
                work=modelled,
                whole=whole,
                shares=shares,
                coverage=covered,
                device=device,
                devices=len(uses),
                other_processes=0 if health is None else health.other_processes,
            ),
        )
    return Analysis(
        tool_version=__version__,
        source=capture.manifest.source,
        title=capture.manifest.title,
        created_ns=capture.manifest.created_ns,
        rank=process.rank,
        world_size=process.world_size,
        command=process.command,
        ending=process.ending,
        exit_code=process.exit_code,
        fingerprint=process.fingerprint,
        device=device,
        schedule=process.schedule,
        steps=times,
        ceilings=ceilings,
        roof_source=roof_source,
        split=split,
        idle=idle,
        exposed=use if complete else None,
        devices=uses if complete else (),
        utilization=shares,
        closed_form=(
            closed_form(modelled, process.model, tokens=declared_tokens(capture.steps))
            if complete
            else None
        ),
        bottleneck=bottleneck,
        binds=binding(split, ops, ceilings, may_wait=not has_no_room_to_wait(times, use)),
        advice=advice.ranked(),
        coverage=covered,
        step=whole,
        kernels=kernels,
        ops=ops,
        ranges=ranges,
        host=host,
        range_times=range_times(capture, work, in_ranges),
        transfers=crossed,
        slowed_by_communication=slowed,
        ranks=all_ranks,
        links=link_figures(summaries, matched, process.link_calibration, nccl, one_host=one_host),
        nccl=nccl,
        recorder=stuck,
        parallelism=find_parallelism(summaries, rank),
        modules=module_tree(ops, work.places.instances),
        totals=totals(work, machine, verdicts),
        explained=explained_largest(capture, work, ops, device),
        graphs=replayed_graphs(capture, work),
        slow_steps=slow_steps(
            capture, work, times, stretch=stretch, critical=use, utilization=shares
        ),
        timeline=find_timeline(
            capture,
            work,
            stretch,
            None if seen is None else seen.pieces,
            [key for key, _ in keyed_kernels],
            job,
        ),
        settings=settings_of(
            process.fingerprint,
            device,
            KnownOfStep(
                times=times,
                split=split,
                exposed=use if complete else None,
                ops=ops,
                transfers=crossed,
                calls=partial(calls_of_profiled_steps, capture),
                device=device,
                state=state,
                health=health,
            ),
        ),
        device_state=state,
        energy=energy_of_steps(capture.samples, capture.steps, device),
        step_readings=step_readings(capture, readings, None if device is None else device.index),
        health=health,
        peak_memory_bytes=process.peak_memory_bytes,
        memory=memory_use(capture),
        measured=measured,
        checklists=kernel_checklists(capture, work, kernels, ops, device),
        activity=counted,
        plugins=plugins_of(process, device, work, verdicts),
        installed_plugins=installed_plugins(),
        warnings=(
            *process.warnings,
            *notes,
            *on_meta(capture),
            *impossible(capture),
            *of_timed_steps(times),
            *over_roof(ops, roof_source),
            *of_unequal_steps(times),
            *sentences(clip_warning(split), slower_warning(split)),
            *without_mbu(shares, roof, traffic),
            *discrepancies(counted, measured),
            *(problem.sentence for problem in noted_problems()),
        ),
    )


def _classified(
    split: StepSplit | None,
    times: StepTimes,
    ops: tuple[RooflinePoint, ...],
    roof: Roof | None,
    *,
    complete: bool,
    others_gap_ns: int,
) -> Bottleneck:
    found = classify_step(
        split, _why_no_split(times, ops, complete=complete), others_gap_ns=others_gap_ns
    )
    if split is None or roof is not None or found.kind != UNKNOWN:
        return found
    # Whatever has a model has no ceiling either.
    why = "no ceiling is known for this device, so nothing tells how fast its work could be"
    return msgspec.structs.replace(found, evidence=why)


def _device_state(capture: Capture, device: Device | None) -> DeviceState | None:
    if device is None:
        return None
    timed = device_state(capture.samples, capture.steps, device.index)
    if timed is None:
        return None
    clock = profiled_clock_mhz(capture.samples, capture.kernels, device.index)
    return msgspec.structs.replace(timed, profiled_sm_clock_mhz_median=clock)


def _clock_ratio(state: DeviceState | None) -> float | None:
    """The clock in the profiled steps over that in the timed ones."""
    if state is None or not state.sm_clock_mhz_median or not state.profiled_sm_clock_mhz_median:
        return None
    return state.profiled_sm_clock_mhz_median / state.sm_clock_mhz_median


def _why_no_split(times: StepTimes, ops: tuple[RooflinePoint, ...], *, complete: bool) -> str:
    if not complete:
        return "launches of its steps have no device work recorded"
    if not ops:
        return "no device work was recorded"
    return "no complete step was recorded" if times.profiled == 0 else "step times are missing"
