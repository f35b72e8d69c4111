"""Pairs of processes in turn, until the rule has decided every benchmark."""

import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

from msgspec import structs

from gpuprof._version import __version__
from gpuprof.collectors.manifest import Fingerprint
from gpuprof.profiler.child_processes import ending_signals_raise
from gpuprof.profiler.configuration.targets import CAPTURES, Target
from gpuprof.profiler.gate.bytecode import kept_bytecode
from gpuprof.profiler.gate.explaining import explain
from gpuprof.profiler.gate.pace import Pace
from gpuprof.profiler.gate.process import measure_process, process_folder
from gpuprof.profiler.gate.sides import SideProgram
from gpuprof.profiler.gate.target_locations import places_of
from gpuprof.reports.console.progress import PartProgress
from gpuprof.reports.formatting import rough_time
from gpuprof.roofline.gate.budget import OnInconclusive
from gpuprof.roofline.gate.clock_lock import clock_locks_that_differ
from gpuprof.roofline.gate.disturbances import disturbances
from gpuprof.roofline.gate.judgement import Judgement
from gpuprof.roofline.gate.measurement import FIGURES
from gpuprof.roofline.gate.result import GateResult, SideInfo
from gpuprof.roofline.gate.series import SIDES, NoiseCalibration, Side
from gpuprof.roofline.gate.suite import (
    MeasuredProcess,
    Rules,
    judge_suite,
    targets_wanting_pairs,
    wants_kernels,
)
from gpuprof.roofline.gate.time_limit import out_of_time, without_more_looks
from gpuprof.roofline.machine.environment import differences

# Of each target so many pairs are profiled, as long as their kernels do not vary: enough to tell
# that counts agree, and that a choice of kernels comes and goes. The others have less to do, and
# where nothing has changed there are none.
_PROFILED_PAIRS = 3


@dataclass(frozen=True)
class StoredSide:
    """A base that was measured before: a baseline."""

    info: SideInfo
    processes: tuple[MeasuredProcess, ...]
    # By target.
    fingerprints: Mapping[str, Fingerprint]
    # What makes it another session than this one, in words; "" where it is this machine's.
    other_session: str = ""


# What is known beforehand of the noise of a target's benchmarks in an environment, by benchmark and
# metric.
Calibrations = Callable[[Target, Fingerprint], Mapping[tuple[str, str], NoiseCalibration]]


@dataclass(frozen=True)
class GatePlan:
    """Everything that one run of the gate needs."""

    base: SideProgram | StoredSide
    head: SideProgram
    rules: Rules
    # Captures and logs of the processes.
    output: Path
    on_inconclusive: OnInconclusive = "warn"
    # Verdicts against another session's baseline hold only where this is set.
    trust_stored: bool = False
    # No pair is started that would end later; None for as many as the rule asks for.
    time_limit_s: float | None = None
    calibrations: Calibrations = lambda target, fingerprint: {}


@ending_signals_raise()
def run_gate(
    plan: GatePlan, progress: PartProgress = lambda what, done, planned: None
) -> GateResult:
    """Measure both sides until every verdict is final. Nothing is raised for what targets do."""
    if isinstance(plan.base, SideProgram) and plan.rules.settings.looks[0] > _PROFILED_PAIRS:
        settings = structs.replace(plan.rules.settings, cleared_after=_PROFILED_PAIRS)
        plan = replace(plan, rules=replace(plan.rules, settings=settings))
    with kept_bytecode(plan.head.python) as variables:
        return _measured(_with_variables(plan, variables), progress)


def _with_variables(plan: GatePlan, variables: Mapping[str, str | None]) -> GatePlan:
    """The plan with these set in the environments of its processes."""
    base, head = plan.base, replace(plan.head, variables=variables)
    if isinstance(base, SideProgram) and base.python == head.python:
        base = replace(base, variables=variables)
    return replace(plan, base=base, head=head)


def _measured(plan: GatePlan, progress: PartProgress) -> GateResult:
    run = _Run(plan, progress)
    first_pairs = plan.rules.settings.first_pairs
    wanted = {target.name: first_pairs for target in plan.head.targets}
    judgements: tuple[Judgement, ...] = ()
    give_up = False
    while wanted:
        # After the first look only what is not decided is measured.
        run.measure(wanted, {j.benchmark for j in judgements if j.pairs_wanted > 0})
        judgements = run.judge()
        if run.out_of_time:
            break
        # Pairs that stay unusable are not measured for ever.
        allowed = {
            name: min(count, run.most_pairs(name, judgements) - run.pairs(name))
            for name, count in targets_wanting_pairs(run.processes, judgements).items()
        }
        wanted = {name: count for name, count in allowed.items() if count > 0}
        give_up = any(count <= 0 for count in allowed.values())
    if give_up:
        judgements = run.judge(give_up=True)
    judgements = run.within_time(judgements)
    stored = plan.base if isinstance(plan.base, StoredSide) else None
    explanations = explain(plan.head, plan.output, judgements, pairs=run.profiled_pairs())
    run.tidy()
    return GateResult(
        tool_version=__version__,
        created_ns=time.time_ns(),
        base=run.side_info("A"),
        head=run.side_info("B"),
        settings=plan.rules.settings,
        on_inconclusive=plan.on_inconclusive,
        advisory=stored is not None and bool(stored.other_session) and not plan.trust_stored,
        judgements=judgements,
        explanations=explanations,
        places=places_of(plan.head.targets, plan.head.folder),
        processes=tuple(run.processes),
        warnings=run.warnings(),
        seconds=round(run.pace.elapsed_s, 1),
    )


@dataclass
class _Run:
    """What has been measured so far."""

    plan: GatePlan
    progress: PartProgress
    processes: list[MeasuredProcess] = field(default_factory=list)
    fingerprints: dict[tuple[str, Side], Fingerprint] = field(default_factory=dict)
    planned: int = 0
    out_of_time: bool = False
    pace: Pace = field(init=False)
    # Until the next look, by target: processes that are left, and pairs that there are then.
    _left: dict[str, int] = field(default_factory=dict)
    _until: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pace = Pace(self.plan.time_limit_s)
        base = self.plan.base
        if isinstance(base, StoredSide):
            self.processes += base.processes
            self.fingerprints.update({(name, "A"): f for name, f in base.fingerprints.items()})

    def pairs(self, target: str) -> int:
        """Pairs measured of one target."""
        return sum(p.target == target and p.side == "B" for p in self.processes)

    def most_pairs(self, target: str, judgements: Sequence[Judgement]) -> int:
        """Where to stop: as many lost pairs as count, and twice the first look; or the baseline's.

        A machine that spoils more than that will not be quiet for the rest.
        """
        base = self.plan.base
        if isinstance(base, StoredSide):
            return sum(p.target == target for p in base.processes)
        looks = self.plan.rules.settings.looks
        holds = _named(self.plan.head.targets, target).holds
        usable = min(
            (j.pairs for j in judgements if j.pairs_wanted > 0 and holds(j.benchmark)), default=0
        )
        return min(2 * usable + 2 * looks[0], looks[-1] + looks[0])

    def measure(self, wanted: Mapping[str, int], only: Collection[str]) -> None:
        """Measure so many more pairs of each target, all targets in turn; `only` empty for all.

        Pairs of one target lie apart, so that a busy minute of the machine does not fall on one
        benchmark alone.
        """
        self._left = {name: self._sides(name) * count for name, count in wanted.items()}
        self._until = {name: self.pairs(name) + count for name, count in wanted.items()}
        self.planned += sum(self._left.values())
        for turn in range(max(wanted.values())):
            for name, count in wanted.items():
                if turn >= count:
                    continue
                if self._refused(name):
                    self.planned -= self._left.pop(name, 0)
                    continue
                if not self.pace.has_time_for(name, self._sides(name)):
                    self.out_of_time = True
                    return
                self._measure_pair(name, only)

    def _sides(self, target: str) -> int:
        """Processes of one pair of `target` that are to be measured."""
        base = self.plan.base
        if isinstance(base, StoredSide):
            return 1
        # A script that the commit does not have is new: there is nothing to compare it with.
        return 1 if base.commit and base.lacks(_named(base.targets, target)) else 2

    def _has_time_to_the_end(self, judgement: Judgement) -> bool:
        """Whether there was time for every look, had this benchmark been suspicious."""
        target = next(t for t in self.plan.head.targets if t.holds(judgement.benchmark))
        pairs = max(0, self.plan.rules.settings.looks[-1] - judgement.pairs)
        return self.pace.has_time_for(target.name, pairs * self._sides(target.name))

    def _refused(self, target: str) -> bool:
        """Whether a target has its verdict: it failed once, or its sides cannot be compared."""
        return bool(self._incomparable().get(target)) or any(
            process.failure for process in self.processes if process.target == target
        )

    def _measure_pair(self, name: str, only: Collection[str]) -> None:
        pair = self.pairs(name)
        base, head = self.plan.base, self.plan.head
        if isinstance(base, StoredSide) or self._sides(name) == 1:
            self._measure_one(head, name, pair, only, first=True)
            return
        order = (base, head) if pair % 2 == 0 else (head, base)
        for position, program in enumerate(order):
            self._measure_one(program, name, pair, only, first=position == 0)

    def _measure_one(
        self, program: SideProgram, name: str, pair: int, only: Collection[str], *, first: bool
    ) -> None:
        target = _named(program.targets, name)
        done = len(self.processes) - self._stored()
        what = f"{name}: pair {pair + 1} of {self._until[name]}, {program.label}"
        self.progress(f"{what}{self._rest()}", done, self.planned)
        with self.pace.timing(name):
            self._run_one(program, target, pair, only, first=first)
        self._left[name] -= 1

    def _run_one(
        self, program: SideProgram, target: Target, pair: int, only: Collection[str], *, first: bool
    ) -> None:
        folder = self._folder(program.side, target.name, pair)
        measured, fingerprint = measure_process(
            program,
            target,
            pair=pair,
            first=first,
            output=folder,
            only=sorted(benchmark for benchmark in only if target.holds(benchmark)),
            profiled=self._is_profiled(target.name, pair),
        )
        self.processes.append(measured)
        if fingerprint is not None:
            self.fingerprints[target.name, program.side] = fingerprint
        if pair >= self._kept_pairs:
            _remove_captures(folder)

    def _rest(self) -> str:
        """How long it takes to the next look, in words; "" before that can be known."""
        seconds = self.pace.left_s(self._left)
        if seconds is None:
            return ""
        looks = self.plan.rules.settings.looks
        which = "first" if max(self._until.values()) <= looks[0] else "next"
        return f"; about {rough_time(seconds)} to the {which} look"

    def within_time(self, judgements: tuple[Judgement, ...]) -> tuple[Judgement, ...]:
        """`judgements` with what the limit of time means for them."""
        limit_s = self.plan.time_limit_s
        if limit_s is None:
            return judgements
        judgements = tuple(
            judgement if self._has_time_to_the_end(judgement) else without_more_looks(judgement)
            for judgement in judgements
        )
        if not self.out_of_time:
            return judgements
        measured = {process.target for process in self.processes if process.side == "B"}
        never = [t.name for t in self.plan.head.targets if t.name not in measured]
        return out_of_time(judgements, never, f"{limit_s:g} s")

    def _is_profiled(self, target: str, pair: int) -> bool:
        """Whether a process of this pair tells its kernels: both of its processes do, or none."""
        if pair < _PROFILED_PAIRS or pair >= self._kept_pairs:
            # What is measured after the first look is under suspicion.
            return True
        if any(name in FIGURES for row in self.plan.rules.budgets for name in row.metrics):
            return True
        earlier = [p for p in self.processes if p.target == target and p.pair < pair]
        return any(wants_kernels(p for p in earlier if p.side == side) for side in SIDES)

    @property
    def _kept_pairs(self) -> int:
        """Pairs whose captures stay until the end: they say why a benchmark changed."""
        return self.plan.rules.settings.looks[0]

    def _folder(self, side: Side, target: str, pair: int) -> Path:
        return process_folder(self.plan.output, side, target, pair)

    def _stored(self) -> int:
        base = self.plan.base
        return len(base.processes) if isinstance(base, StoredSide) else 0

    def judge(self, *, give_up: bool = False) -> tuple[Judgement, ...]:
        """The verdicts on what has been measured."""
        return judge_suite(
            self.processes,
            self._rules(),
            today=date.today(),
            incomparable=self._incomparable(),
            give_up=give_up,
        )

    def _rules(self) -> Rules:
        """The plan's, with what is known of the noise here."""
        known = dict(self.plan.rules.calibrations)
        for target in self.plan.head.targets:
            fingerprint = self.fingerprints.get((target.name, "B"))
            if fingerprint is not None:
                known.update(self.plan.calibrations(target, fingerprint))
        return replace(self.plan.rules, calibrations=known)

    def _incomparable(self) -> dict[str, tuple[str, ...]]:
        """By target what its two sides differ in and must agree on."""
        found = self._differences("strict")
        for name in dict.fromkeys(process.target for process in self.processes):
            own = [process for process in self.processes if process.target == name]
            found[name] = (*found.get(name, ()), *clock_locks_that_differ(own))
        return found

    def _differences(self, kind: str) -> dict[str, tuple[str, ...]]:
        return {
            name: getattr(differences(first, self.fingerprints[name, "B"]), kind)
            for (name, side), first in self.fingerprints.items()
            if side == "A" and (name, "B") in self.fingerprints
        }

    def side_info(self, side: Side) -> SideInfo:
        """One side for the result."""
        fingerprint = next((f for (_, s), f in self.fingerprints.items() if s == side), None)
        program = self.plan.base if side == "A" else self.plan.head
        if isinstance(program, StoredSide):
            return program.info
        return SideInfo(
            label=program.label,
            commit=program.commit,
            fingerprint=fingerprint or Fingerprint(),
        )

    def profiled_pairs(self) -> dict[str, tuple[int, ...]]:
        """By target those of the kept pairs that tell kernels."""
        return {
            target.name: tuple(
                process.pair
                for process in self.processes
                if process.target == target.name
                and process.side == "B"
                and process.profiled
                and process.pair < self._kept_pairs
            )
            for target in self.plan.head.targets
        }

    def tell(self, what: str) -> None:
        """Say what is done once everything is measured."""
        self.progress(what, self.planned, self.planned)

    def tidy(self) -> None:
        """Leave the captures of the first pair only."""
        for target in self.plan.head.targets:
            for pair in range(1, self._kept_pairs):
                for side in SIDES:
                    _remove_captures(self._folder(side, target.name, pair))

    def warnings(self) -> tuple[str, ...]:
        """What a reader of the verdicts should know."""
        base = self.plan.base
        said = [
            f"{name}: {difference}"
            for name, found in self._differences("advisory").items()
            for difference in found
        ]
        if isinstance(base, StoredSide) and base.other_session:
            said.append(
                f"the baseline is of another session ({base.other_session}): such comparisons "
                "raise false alarms in 1 suite of 20, so they are advisory unless --allow-stored"
            )
        return (*said, *disturbances(self.processes, self.plan.rules.settings))


def _remove_captures(folder: Path) -> None:
    for capture in folder.glob(CAPTURES):
        shutil.rmtree(capture)


def _named(targets: tuple[Target, ...], name: str) -> Target:
    return next(target for target in targets if target.name == name)
