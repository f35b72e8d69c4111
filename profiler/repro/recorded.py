"""Which recorded calls a name means, and whether one can be made again."""

import re
from typing import TYPE_CHECKING, Final

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import TORCH, CommandError, MissingDependencyError
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.explain.calls import AlikeCalls, RecordedCalls, RepeatableCall

if TYPE_CHECKING:
    from gpuprof.profiler.repro.python_call import PythonCall

# Not a range, a node of autograd or a compiled kernel.
_OPERATOR: Final = re.compile(r"\w+::\w+")


def choose_call(
    capture: Capture, analysis: Analysis, name: str, number: int
) -> tuple[RepeatableCall, tuple[AlikeCalls, ...]]:
    """Of the calls that `name` means that with `number`, from 1, and all of them.

    Raises `CommandError` (exit 2) where there are none, or not so many.
    """
    calls = RecordedCalls(capture, analysis)
    found = calls.called(name)
    if not found:
        raise CommandError(
            f"{name}: no operator with device work is called so; gpuprof explain lists near names",
            exit_code=2,
        )
    if not 1 <= number <= len(found):
        has = f"{name} has {len(found)} call{'s' if len(found) > 1 else ''}"
        raise CommandError(f"--pick {number}: {has} with different arguments", exit_code=2)
    return calls.read(*found[number - 1]), tuple(group for group, _ in found)


def as_python(chosen: "RepeatableCall") -> "PythonCall":
    """How it is called. Raises `CommandError` where shapes do not tell, and of what is missing."""
    name = chosen.group.name
    if name.startswith("record_param_comms") or "collective" in chosen.kinds:
        raise CommandError(
            f"{name} sends to other ranks, which one process has not; "
            "gpuprof bench collectives measures such calls"
        )
    if chosen.over_link:
        raise CommandError(
            f"{name} copies to or from the host or another device, and where its tensors "
            "lay is not recorded; gpuprof calibrate measures the link"
        )
    callees = [one for one in chosen.working if _OPERATOR.fullmatch(one)]
    if not _OPERATOR.fullmatch(name):
        of_them = f"; take what works in it: {', '.join(callees[:3])}" if callees else ""
        raise CommandError(
            f"{name} is no operator but a range, a node of autograd or a compiled kernel{of_them}"
        )
    if chosen.call is None:
        raise CommandError(
            f"{name}: its shapes were not recorded; record them with gpuprof run, or "
            "record_shapes=True of torch.profiler"
        )
    try:
        from gpuprof.profiler.repro.python_call import python_call
    except ModuleNotFoundError as error:
        raise MissingDependencyError("torch", "write a call of an operator", TORCH) from error
    return python_call(chosen.call)
