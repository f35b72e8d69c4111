"""Why the device had no work in a step: parts of an `Analysis`.

Frozen structs; unknown is None. Times are integer nanoseconds of one step.
"""

import msgspec

from gpuprof.roofline.classes import ClassName
from gpuprof.roofline.step_figures import StepDefinition


class IdleCulprit(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that the host does, in all its calls, while the device has no work."""

    # What a program writes where that is known (".item()"), else an operator, a call, a range.
    what: str
    # The runtime call and the innermost operator around it; "" where there is none.
    call: str = ""
    operator: str = ""
    # The queued work that the device has not begun, as the trace names it.
    kernel: str = ""
    # "train.py:42"; "" where the capture has no lines.
    place: str = ""
    # Why it is done or what it waits for, where that was recorded: the guard that failed, who
    # works while a batch is waited for.
    detail: str = ""
    # None where it is known of timed steps that nobody looked into.
    calls_per_step: float | None
    # In the step of the split, and in a profiled one.
    nanoseconds: int
    profiled_ns: int
    # Of nanoseconds for launches, those until collectives begin that one message with the call
    # before could replace.
    mergeable_ns: int = 0


class IdleCause(msgspec.Struct, frozen=True, kw_only=True):
    """The time without device work of one class."""

    kind: ClassName
    # As the split has it.
    nanoseconds: int
    # Within which it lies in a step without the profiler; None on a CPU, where that is not known.
    least_ns: int | None = None
    most_ns: int | None = None
    profiled_ns: int
    # For how long the host does it in a timed step, where that was counted there, and in a profiled
    # one, also while the device has work; None where nothing tells.
    counted_ns: int | None = None
    profiled_host_ns: int | None = None
    # Of that, what the device's work hides in the step of the split, where all that follows comes
    # as much earlier without it; 0 where the host waits for its device in the step anyway.
    hidden_ns: int = 0
    # Those that cost most, first; what the others cost together, and how many they are.
    culprits: tuple[IdleCulprit, ...] = ()
    others: int = 0
    others_ns: int = 0
    # Of nanoseconds, as of its culprits.
    mergeable_ns: int = 0


class IdlePart(msgspec.Struct, frozen=True):
    """The time without device work of one class in one profiled step."""

    kind: ClassName
    nanoseconds: int


class IdleTime(msgspec.Struct, frozen=True, kw_only=True):
    """A step's time in which no device of the process has work, by cause.

    The causes add up to `nanoseconds`, which is the split's time without device work but for
    waiting for another device.
    """

    nanoseconds: int
    profiled_ns: int
    # Where the lengths come from; the causes are always those of profiled steps.
    basis: StepDefinition
    # They were seen in the program's first steps, which may do what later ones do not. One alone
    # does not tell why timed steps wait. In the JSON it has the name of when there was only one.
    first_steps: bool = msgspec.field(default=False, name="first_step")
    # The largest first.
    causes: tuple[IdleCause, ...]
    # Of each profiled step in order, as it was seen there.
    profiled_steps: tuple[tuple[IdlePart, ...], ...] = ()

    @property
    def is_of_one_first_step(self) -> bool:
        """Whether the causes are those of a step that does not tell why timed ones wait."""
        return self.basis == "timed" and self.first_steps and len(self.profiled_steps) == 1
