"""What disturbed the processes of a gate, in sentences for whoever reads its verdicts."""

from collections.abc import Iterator, Sequence

from gpuprof.roofline.gate.rule import RuleSettings
from gpuprof.roofline.gate.series import usable
from gpuprof.roofline.gate.suite import MeasuredProcess, time_run
from gpuprof.roofline.steps.settling import unsettled

# Of a benchmark's processes, more than noise alone lets appear so.
_MANY = 0.25


def disturbances(processes: Sequence[MeasuredProcess], settings: RuleSettings) -> tuple[str, ...]:
    """All that is said of `processes`."""
    return (*_shared(processes), *_lost(processes, settings), *still_settling(processes))


def _shared(processes: Sequence[MeasuredProcess]) -> Iterator[str]:
    shared = sum(bool(process.contamination) for process in processes)
    if shared:
        yield f"{shared} of {len(processes)} processes shared the GPU with others and do not count"


def _lost(processes: Sequence[MeasuredProcess], settings: RuleSettings) -> Iterator[str]:
    """A sentence for each benchmark of which processes lost too many of their samples."""
    names = dict.fromkeys(name for process in processes for name in process.measurements)
    for name in names:
        own = [
            (process, process.measurements[name])
            for process in processes
            if name in process.measurements and not process.contamination
        ]
        lost = [
            measured
            for process, measured in own
            if not usable(time_run(process, measured), settings.discarded_share)
        ]
        reasons = dict.fromkeys(reason for one in lost for reason in one.discard_reasons)
        if reasons:
            do = "does" if len(lost) == 1 else "do"
            yield (
                f"{name}: {len(lost)} of {len(own)} processes {do} not count, as over "
                f"{settings.discarded_share:.0%} of their samples were disturbed: "
                f"{', '.join(reasons)}"
            )


def still_settling(processes: Sequence[MeasuredProcess]) -> Iterator[str]:
    """A sentence for each benchmark of which many processes were timed too early."""
    seen: dict[str, list[bool]] = {}
    for process in processes:
        for name, measured in process.measurements.items():
            seen.setdefault(name, []).append(unsettled(measured.samples_ns) is not None)
    for name, early in seen.items():
        if sum(early) > len(early) * _MANY:
            yield (
                f"{name}: in {sum(early)} of {len(early)} processes the first timed steps were of "
                "another length than the others: a longer warm-up would avoid that "
                "(`warmup` of the target; of a bench, which warms up for a fifth of it, --seconds)"
            )
