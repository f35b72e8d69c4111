"""The tensors in the lists that operators were given, which a trace leaves out.

Kineto writes no element type for a list of tensors, and a list of more than 30 as empty (pytorch
torch/csrc/profiler/util.cpp, TENSOR_LIST_DISPLAY_LENGTH_LIMIT). The profiler itself has all of
them. `gpuprof.collectors.kineto.tensor_lists` puts them into the trace's operators.
"""

from pathlib import Path
from typing import Any

import msgspec
import torch
from torch._C._profiler import _EventType, _TensorMetadata

from gpuprof.collectors.recorded_lists import RecordedList, RecordedLists, beside


def write_tensor_lists(kineto_results: Any, trace: Path) -> None:
    """Write the lists of all recorded operators beside `trace`, which is of the same profiler."""
    found: dict[int, tuple[RecordedList | None, ...]] = {}
    waiting = list(kineto_results.experimental_event_tree())
    while waiting:
        event = waiting.pop()
        waiting.extend(event.children)
        if event.tag != _EventType.TorchOp:
            continue
        arguments = tuple(map(_recorded, event.extra_fields.inputs))
        if any(arguments):
            found[event.correlation_id] = arguments
    beside(trace).write_bytes(msgspec.json.encode(RecordedLists(found)))


def _recorded(argument: Any) -> RecordedList | None:
    """`argument` where it is a list of tensors."""
    if not isinstance(argument, list) or not argument:
        return None
    if not all(isinstance(tensor, _TensorMetadata) for tensor in argument):
        return None
    return RecordedList(
        shapes=[tuple(tensor.sizes) for tensor in argument],
        strides=[tuple(tensor.strides) for tensor in argument],
        dtypes=[_name(tensor.dtype) for tensor in argument],
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
