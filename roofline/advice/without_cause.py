"""What a step takes without one cause of waiting: the longest of what is left.

The device's work is left, and what else the host does. Where the host never waits for its device,
the two run side by side, so a step is then as long as the longer of the two:

    step = max(device, host - cause)

Where it does wait, each step begins anew after that: only the time without device work goes.
"""

from dataclasses import dataclass
from typing import Final

from gpuprof.roofline.advice.candidate import Gain
from gpuprof.roofline.classes import QUEUED, UNEXPLAINED, ClassName
from gpuprof.roofline.durations import duration
from gpuprof.roofline.idle_figures import IdleCause, IdleTime
from gpuprof.roofline.step_figures import StepTimes
from gpuprof.roofline.steps.waiting import LONGEST_STRETCH

# Of what is left of a step: a range within that is not worth a word.
_CLOSE: Final = 0.15


@dataclass(frozen=True)
class Step:
    """The step that a cause is taken from."""

    idle: IdleTime
    times: StepTimes
    on_cpu: bool

    def gain_without(self, cause: IdleCause, *, left_ns: int = 0) -> Gain:
        """What is gained where all of `cause` goes, and others likely need `left_ns` for a step."""
        gain = self._on_cpu(cause) if self.on_cpu else self._on_device(cause)
        step_ns = self.times.length_ns
        if step_ns is None or not left_ns:
            return gain
        likely = gain.at_most(step_ns - left_ns)
        return Gain(likely.ns, likely.least_ns, gain.most_ns)

    def why_uncertain(self, cause: IdleCause, gain: Gain) -> str:
        """Why what is left of a step is not known better; "" where it is known."""
        step_ns = self.times.length_ns
        if step_ns is None or gain.most_ns - gain.least_ns <= _CLOSE * (step_ns - gain.ns):
            return ""
        unexplained_ns = self._nanoseconds(UNEXPLAINED)
        if unexplained_ns > _CLOSE * (step_ns - gain.ns):
            return (
                f"timed steps waited {duration(unexplained_ns)} longer than profiled ones, and "
                "nothing tells what for"
            )
        if cause.counted_ns is not None:
            return "what follows such a pause runs with cold caches, and may be faster without it"
        return "how long the rest takes was seen in profiled steps only, which take longer"

    def _on_device(self, cause: IdleCause) -> Gain:
        idle_ns = self.idle.nanoseconds
        # What is queued the device itself has to begin, some of it sooner where it never waits.
        gain_ns = min(cause.nanoseconds + cause.hidden_ns, idle_ns - self._nanoseconds(QUEUED))
        least_ns = cause.nanoseconds if cause.least_ns is None else cause.least_ns
        if cause.counted_ns is not None and cause.hidden_ns:
            # All of it goes, however much of it the device's work hides.
            least_ns = gain_ns
        most_ns = cause.nanoseconds if cause.most_ns is None else cause.most_ns
        most_ns += cause.hidden_ns
        shortest_ns = self._shortest_ns(cause)
        if shortest_ns is not None and self.times.length_ns is not None:
            most_ns = max(most_ns, self.times.length_ns - shortest_ns)
        return Gain(gain_ns, min(least_ns, gain_ns), max(gain_ns, min(most_ns, idle_ns)))

    def _shortest_ns(self, cause: IdleCause) -> int | None:
        """What the host at least takes for the rest of a step; None where that is not known.

        The rest of a profiled step, with the most that a profiler makes it longer. What was counted
        in timed steps leaves more: after a pause of Python the host's caches are cold.
        """
        profiled_ns = self.times.profiled_mean_ns
        if not self.times.timed or profiled_ns is None or cause.profiled_host_ns is None:
            return None
        return max(0, round((profiled_ns - cause.profiled_host_ns) / LONGEST_STRETCH))

    def _on_cpu(self, cause: IdleCause) -> Gain:
        """On a CPU nothing hides it, so all that was counted in a timed step is gained."""
        gain_ns = cause.nanoseconds
        if self.times.timed and cause.counted_ns is not None:
            gain_ns = cause.counted_ns
        return Gain(gain_ns, gain_ns, gain_ns)

    def _nanoseconds(self, kind: ClassName) -> int:
        return sum(each.nanoseconds for each in self.idle.causes if each.kind == kind)
