"""What `gpuprof snap --attach` and the program that it attaches to say to each other.

Over a socket, as `storing_messages` are sent. In the place of each answer the program may say in a
plain string why it does not do what was asked; nothing comes after that.
"""

from dataclasses import dataclass

from gpuprof.profiler.run.recorded import Subject
from gpuprof.profiler.run.session_options import SessionOptions


@dataclass(frozen=True)
class RecordRequest:
    """Record the next steps. `ReachedPhase`s follow, and `StoreAside` in the end."""

    subject: Subject
    options: SessionOptions


@dataclass(frozen=True)
class ReachedPhase:
    """What the session does from now on: SEARCHING, and what `Session` tells. No answer."""

    name: str


# Before any step was marked.
SEARCHING = "searching"
