"""The one way to say that something could not be answered."""

import msgspec

from gpuprof.collectors.errors import (
    CaptureError,
    GpuprofError,
    MissingDependencyError,
    describe,
)


class CannotAnswer(msgspec.Struct, frozen=True):
    """Why something could not be answered. Wherever that is so, `cannot_answer` holds this."""

    reason: str
    # What to do; "" where nothing is known to help.
    remedy: str = ""

    @classmethod
    def because(cls, error: GpuprofError | OSError) -> "CannotAnswer":
        """What `error` says: what is wrong, and behind a semicolon what to do."""
        said = describe(error)
        if isinstance(error, CaptureError | MissingDependencyError):
            remedy = error.remedy
        else:
            remedy = said.partition("; ")[2]
        return cls(said.removesuffix(remedy).rstrip(":; ") if remedy else said, remedy)
