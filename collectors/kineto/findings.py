"""What had to be repaired, skipped or guessed while reading one trace, counted for the user."""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from gpuprof.collectors.kineto.foreign import ForeignTrace, foreign_traces

# What traces call the processes in which they show devices.
_DEVICE_NAME: Final = re.compile(
    r"\b(?:[GNX]PU|TPU|HPU|MTIA|Ascend|CUDA|HIP|device|hardware|stream)\b", re.IGNORECASE
)


@dataclass
class Findings:
    """Counts that become the warnings of the capture. Filled while a trace is read."""

    # Events without the fields of their kind, or array elements that are no events.
    malformed: int = 0
    negative_durations: int = 0
    # Complete events without a category, by process: nothing tells what they are.
    uncategorised: Counter[str] = field(default_factory=Counter)
    # Among the events that are not read are some with a stream or a grid.
    device_rows: bool = False
    # The program used a device, and another tool than torch's profiler recorded its work.
    device_elsewhere: bool = False
    # What the trace calls its processes, by process.
    process_names: dict[str, str] = field(default_factory=dict)
    # Stretches of text that no repair makes an event of.
    unreadable: int = 0
    # What was repaired -> how often; the keys are those of `repair`.
    repairs: Counter[str] = field(default_factory=Counter)
    unread_categories: Counter[str] = field(default_factory=Counter)
    # Where the text ends early or stops making sense: "" or a clause about the file.
    cut: str = ""
    damaged_header: bool = False
    unusable_base_time: bool = False
    unknown_dtypes: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Findings") -> None:
        """Count what another part of the same trace showed."""
        self.malformed += other.malformed
        self.uncategorised.update(other.uncategorised)
        self.device_rows |= other.device_rows
        self.device_elsewhere |= other.device_elsewhere
        self.process_names.update(other.process_names)
        self.negative_durations += other.negative_durations
        self.unreadable += other.unreadable
        self.repairs.update(other.repairs)
        self.unread_categories.update(other.unread_categories)
        self.unknown_dtypes.update(other.unknown_dtypes)
        self.cut = self.cut or other.cut
        self.damaged_header |= other.damaged_header
        self.unusable_base_time |= other.unusable_base_time

    @property
    def unread_device(self) -> bool:
        """Whether events that are not read are work of a device, by their args or process."""
        return self.device_rows or any(
            _DEVICE_NAME.search(self.process_names.get(process, ""))
            for process in self.uncategorised
        )

    @property
    def foreign(self) -> ForeignTrace | None:
        """The other tool's format that the trace has, if any."""
        processes = self.process_names.values()
        found = (one for one in foreign_traces() if one.wrote(processes, self.unread_categories))
        return next(found, None)

    @property
    def incomplete(self) -> bool:
        """Events are missing that the file should have held."""
        return bool(self.cut or self.unreadable)

    def sentences(self) -> tuple[str, ...]:
        """One plain sentence for each kind of finding."""
        found: list[str] = []
        if self.cut:
            found.append(f"INCOMPLETE: {self.cut}; only the complete events before it were read.")
        if self.unreadable:
            found.append(
                f"INCOMPLETE: {_count(self.unreadable, 'event')} could not be read as JSON and "
                f"{_was(self.unreadable)} left out."
            )
        if self.damaged_header:
            found.append(
                "The trace's metadata could not be read: device, rank and clock are unknown."
            )
        if self.unusable_base_time:
            found.append("baseTimeNanoseconds is not a plausible time and was ignored.")
        if self.malformed:
            found.append(
                f"{_count(self.malformed, 'malformed event')} "
                f"(without name, time or duration) {_was(self.malformed)} left out."
            )
        if self.uncategorised:
            total = sum(self.uncategorised.values())
            found.append(
                f"{_count(total, 'event')} without a category (cat) {_was(total)} left out: "
                "what they are is unknown."
            )
        if self.negative_durations:
            found.append(
                f"{_count(self.negative_durations, 'event')} with a negative duration "
                f"{_was(self.negative_durations)} left out."
            )
        if self.repairs:
            repairs = ", ".join(_count(number, what) for what, number in self.repairs.items())
            found.append(f"The trace is not valid JSON; repaired: {repairs}.")
        if self.unread_categories:
            total = sum(self.unread_categories.values())
            names = ", ".join(map(_printable, sorted(self.unread_categories)[:8]))
            found.append(f"{_count(total, 'event')} of kinds that are not read: {names}.")
        for dtype, number in sorted(self.unknown_dtypes.items()):
            collectives = f"{_count(number, 'collective')} of unknown dtype {_printable(dtype)}"
            found.append(f"{collectives}: message size unknown.")
        return tuple(found)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _printable(name: str) -> str:
    """Text of the file, fit for one line of a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in name[:40])


def _was(number: int) -> str:
    return "was" if number == 1 else "were"
