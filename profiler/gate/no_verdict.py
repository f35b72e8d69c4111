"""What stops a gate before it has a verdict."""

from collections.abc import Iterator
from contextlib import contextmanager

from gpuprof.collectors.errors import CommandError, GpuprofError, describe


@contextmanager
def no_verdict() -> Iterator[None]:
    """What stops the gate itself ends it with 2: to whoever asks the exit code, 1 is REGRESSED."""
    try:
        yield
    except GpuprofError as error:
        if error.exit_code != 1:
            raise
        raise CommandError(str(error), exit_code=2) from error
    except BrokenPipeError:
        # Whoever read our output has enough of it.
        raise
    except OSError as error:
        raise CommandError(describe(error), exit_code=2) from error
