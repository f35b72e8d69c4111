"""The steps of traces that other tools recorded: those that --step-range names, or evident ones."""

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CommandError
from gpuprof.roofline.work.range_steps import with_evident_steps, with_steps_of_range


def with_steps(capture: Capture, step_range: str | None) -> Capture:
    """`capture` with the ranges called `step_range` as steps, or those that evidently mark some.

    Raises `CommandError` where no range is called so.
    """
    if step_range is None:
        return with_evident_steps(capture)
    try:
        return with_steps_of_range(capture, step_range)
    except ValueError as error:
        raise CommandError(f"--step-range {step_range}: {error}", exit_code=2) from error
