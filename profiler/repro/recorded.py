"""Which recorded calls a name means, and whether one can be made again."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import TORCH, CommandError, MissingDependencyError
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.explain.calls import RecordedCall, recorded_calls

if TYPE_CHECKING:
    from gpuprof.profiler.repro.python_call import PythonCall

# Not a range, a node of autograd or a compiled kernel.
_OPERATOR: Final = re.compile(r"\w+::\w+")


def calls_of(capture: Capture, analysis: Analysis, name: str) -> tuple[RecordedCall, ...]:
    """As `recorded_calls`. Raises `CommandError` (exit 2) where there is none."""
    found = recorded_calls(capture, analysis, name)
    if not found:
        raise CommandError(
            f"{name}: no operator with device work is called so; gpuprof explain lists near names",
            exit_code=2,
        )
    return found


def chosen_call(found: Sequence[RecordedCall], name: str, number: int) -> RecordedCall:
    """That with `number`, from 1. Raises `CommandError` (exit 2)."""
    if not 1 <= number <= len(found):
        has = f"{name} has {len(found)} call{'s' if len(found) > 1 else ''}"
        raise CommandError(f"--pick {number}: {has} with different arguments", exit_code=2)
    return found[number - 1]


def as_python(chosen: "RecordedCall") -> "PythonCall":
    """How it is called. Raises `CommandError` where shapes do not tell, and of what is missing."""
    if chosen.name.startswith("record_param_comms") or "collective" in chosen.kinds:
        raise CommandError(
            f"{chosen.name} sends to other ranks, which one process has not; "
            "gpuprof bench collectives measures such calls"
        )
    if chosen.over_link:
        raise CommandError(
            f"{chosen.name} copies to or from the host or another device, and where its tensors "
            "lay is not recorded; gpuprof calibrate measures the link"
        )
    callees = [one for one in chosen.working if _OPERATOR.fullmatch(one)]
    if not _OPERATOR.fullmatch(chosen.name):
        of_them = f"; take what works in it: {', '.join(callees[:3])}" if callees else ""
        raise CommandError(
            f"{chosen.name} is a range or a node of autograd, and no operator{of_them}"
        )
    if chosen.call is None:
        raise CommandError(
            f"{chosen.name}: its shapes were not recorded; record them with gpuprof run, or "
            "record_shapes=True of torch.profiler"
        )
    try:
        from gpuprof.profiler.repro.python_call import python_call
    except ModuleNotFoundError as error:
        raise MissingDependencyError("torch", "write a call of an operator", TORCH) from error
    return python_call(chosen.call)
