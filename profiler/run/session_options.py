"""What a session is asked to do."""

from dataclasses import dataclass, field

from gpuprof.collectors.manifest import Schedule


@dataclass(frozen=True)
class SessionOptions:
    """What to watch and for how long."""

    schedule: Schedule = field(default_factory=Schedule)
    # The name of a step source, or "script" for none, forces where steps come from.
    steps: str | None = None
    step_range: str | None = None
    stop_after: bool = False
    # After the profiled steps: every step in full detail, rather than how long they take.
    watch: bool = False
    # False where another tool holds the device's tracing interface.
    first_look: bool = True
    # True where the session begins with the program's import of torch: no tensor is older.
    from_the_start: bool = False
    # Whether each allocation on a GPU keeps its Python stack, in all steps.
    memory_stacks: bool = False
    # Whether operators of the profiled steps keep their whole Python stack.
    stacks: bool = False
    # Whether the device's counters are sampled during the profiled steps.
    pm_sampling: bool = False


class StopAfterSteps(SystemExit):
    """Ends the script once the profiled steps are done, as `--stop-after` asks."""
