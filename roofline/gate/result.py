"""What a gate found: the verdicts, what they rest on, and the exit code. Written as gate.json."""

import msgspec

from gpuprof.collectors.manifest import Fingerprint
from gpuprof.roofline.comparison.causes import causes
from gpuprof.roofline.comparison.kernel_changes import KernelSide
from gpuprof.roofline.comparison.result import Comparison
from gpuprof.roofline.gate.budget import OnInconclusive
from gpuprof.roofline.gate.call_text import call_text, tensors_of
from gpuprof.roofline.gate.judgement import Judgement
from gpuprof.roofline.gate.rule import RuleSettings
from gpuprof.roofline.gate.suite import MeasuredProcess

GATE_SCHEMA_VERSION = 1
GATE_FILE = "gate.json"

PASSED, REGRESSED, INCOMPARABLE, INCONCLUSIVE, CRASHED = 0, 1, 3, 4, 5


class SideInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two programs that were compared."""

    # "base 3f2a91c", "./", a baseline's name: for people.
    label: str
    commit: str | None = None
    fingerprint: Fingerprint = Fingerprint()


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a benchmark stands in the source of the head. The file is relative to its folder."""

    file: str
    line: int = 1


class Culprit(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a step's change: a kernel, or time in which nothing computes."""

    # A kernel's name, "before -> after" where it was renamed; "waiting for the host", ...
    name: str
    # How the kernel was matched ("name", "new", "removed", ...), or "step".
    match: str
    # The operator that launches it, "aten::mm backward" in a backward pass; "" where none is known.
    op: str = ""
    # By how much it lengthened a step; negative where it shortened it.
    change_ns: float
    # Of the step's own change; None where that is too small to divide.
    share: float | None = None
    # Where the head launches that operator.
    source: Place | None = None


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why one benchmark changed, from one process of each side."""

    benchmark: str
    comparison: Comparison
    # Where the head launches operators, by calls as `call_text` has them.
    sources: dict[str, Place] = {}

    @property
    def culprits(self) -> tuple[Culprit, ...]:
        """What carries the change, the part that moved the step furthest its way first."""
        step = self.comparison.step
        if step is None:
            return ()
        direction = 1 if step.change_ns >= 0 else -1
        return tuple(
            Culprit(
                name=cause.name,
                match="step" if cause.kernel is None else cause.kernel.match,
                op="" if cause.kernel is None else _op_text(cause.kernel.side),
                change_ns=cause.change_ns,
                share=cause.share,
                source=None if cause.kernel is None else self._source(cause.kernel.head),
            )
            for cause in causes(self.comparison)
            if direction * cause.change_ns > 0 and cause.kind != "unexplained"
        )

    @property
    def source(self) -> Place | None:
        """Where the head launches the largest cause, or None where that is unknown."""
        largest = self.culprits[:1]
        return largest[0].source if largest else None

    @property
    def source_of_new(self) -> Place | None:
        """Where the head launches the largest kernel that the base does not run, or None."""
        new = [change for change in self.comparison.kernels if change.match == "new"]
        largest = max(new, key=lambda change: change.change_ns, default=None)
        return None if largest is None else self._source(largest.head)

    def _source(self, side: KernelSide | None) -> Place | None:
        """Where the kernel's operator is launched: on a CPU the kernel is the operator."""
        if side is None:
            return None
        ops = [*side.op.split(", "), side.name]
        tensors = tensors_of(side.shapes) or ""
        backward = side.phase == "backward"
        calls = [call_text(op, t, backward=backward) for t in (tensors, "") for op in ops]
        return next((self.sources[call] for call in calls if call in self.sources), None)


def _op_text(side: KernelSide) -> str:
    return f"{side.op} backward" if side.op and side.phase == "backward" else side.op


class GateResult(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the gate."""

    schema_version: int = GATE_SCHEMA_VERSION
    tool_version: str
    created_ns: int
    # The tool whose results were judged; "" where the gate ran the processes itself.
    tool: str = ""
    base: SideInfo
    head: SideInfo
    settings: RuleSettings
    on_inconclusive: OnInconclusive = "warn"
    # True where the base's figures come from another session, so nothing fails.
    advisory: bool = False
    judgements: tuple[Judgement, ...]
    explanations: tuple[Explanation, ...] = ()
    # By benchmark, or by the target that holds it.
    places: dict[str, Place] = {}
    # Raw samples of every process.
    processes: tuple[MeasuredProcess, ...] = ()
    # Plain sentences for the whole suite.
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """0 pass; 1 regression; 3 incomparable; 4 inconclusive where asked to fail; 5 crashed.

        Where it is advisory no comparison fails: only what cannot be compared at all does.
        """
        held = [j for j in self.judgements if j.level == "error"]
        verdicts = {j.verdict for j in held}
        if "REGRESSED" in verdicts and not self.advisory:
            return REGRESSED
        errors = {j.reason for j in held if j.verdict == "ERROR"}
        if errors:
            # A benchmark without data must not pass, but only a crash is the program's own.
            return CRASHED if "crashed" in errors else REGRESSED
        if "INCOMPARABLE" in verdicts:
            return INCOMPARABLE
        undecided = "INCONCLUSIVE" in verdicts and not self.advisory
        if undecided and self.on_inconclusive == "fail":
            return INCONCLUSIVE
        return PASSED
