"""What records beside torch's profiler, only while that runs, and all of these together."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from gpuprof.collectors.errors import reason
from gpuprof.collectors.live.script_errors import is_ours

T = TypeVar("T")
R = TypeVar("R", bound="ProfileRecorder")

# By table of gpuprof.collectors.schema. Plain values, which another process can be given; `rank`
# and `process` are filled where a capture is made of them.
Rows = Mapping[str, Sequence[Mapping[str, object]]]


class ProfileRecorder(Protocol):
    """Records once, from `start` to `stop`, both on the thread that is profiled.

    Where that was another thread than the one that ends a profile, `stop` is called there.

    Neither has to catch everything: `ProfileRecording` makes a note of what they raise.
    """

    # What it records, in words, for the sentence that says it is missing.
    subject: str

    def start(self) -> None:
        """Begin to record."""

    def stop(self) -> Rows:
        """End, and return what was recorded since `start`."""


@runtime_checkable
class StepListeningRecorder(ProfileRecorder, Protocol):
    """One that is told of the steps in its profile."""

    def step_begins(self) -> None:
        """A step begins, on the thread that makes them."""


class ProfileRecording:
    """The recorders of one session, started and stopped together with its profiles."""

    def __init__(
        self,
        recorders: Callable[[], Sequence[ProfileRecorder]],
        *,
        of_steps: Callable[[], Sequence[ProfileRecorder]] = tuple,
    ) -> None:
        """Each makes those of one profile; `of_steps` is for profiles of the program's steps."""
        # What went wrong, each once.
        self.notes: list[str] = []
        self._recorders = recorders
        self._of_steps = of_steps
        self._running: list[ProfileRecorder] = []

    def start(self, *, of_steps: bool = False) -> None:
        """Start every recorder. One that does not start is left out of this profile.

        What a profile of another thread, which cannot be ended from this one, left running ends.
        """
        self.stop()
        for recorder in (*(self._of_steps() if of_steps else ()), *self._recorders()):
            if self._try(recorder, _started, default=False):
                self._running.append(recorder)

    def step_begins(self) -> None:
        """Tell what runs and listens to steps."""
        for recorder in self._running:
            if isinstance(recorder, StepListeningRecorder):
                self._try(recorder, _told_of_a_step, default=None)

    def stop(self) -> dict[str, list[Mapping[str, object]]]:
        """Stop what runs. The rows of all, by table; none where nothing runs."""
        rows: dict[str, list[Mapping[str, object]]] = {}
        while self._running:
            nothing: Rows = {}
            recorded = self._try(self._running.pop(), _stopped, default=nothing)
            for table, found in recorded.items():
                rows.setdefault(table, []).extend(found)
        return rows

    def _try(self, recorder: R, step: Callable[[R], T], *, default: T) -> T:
        try:
            return step(recorder)
        except BaseException as error:
            if not is_ours(error):
                raise
            sentence = f"{recorder.subject} could not be recorded: {reason(error)}"
            if sentence not in self.notes:
                self.notes.append(sentence)
            return default


def _started(recorder: ProfileRecorder) -> bool:
    recorder.start()
    return True


def _stopped(recorder: ProfileRecorder) -> Rows:
    return recorder.stop()


def _told_of_a_step(recorder: StepListeningRecorder) -> None:
    recorder.step_begins()
