"""The tensors that operators were given, as far as a trace leaves them out.

Kineto writes no element type for a list of tensors, and a list of more than 30 as empty (pytorch
torch/csrc/profiler/util.cpp, TENSOR_LIST_DISPLAY_LENGTH_LIMIT). The profiler itself has all of
them. `gpuprof.collectors.kineto.tensor_lists` puts them into the trace's operators.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch._C._profiler import _EventType, _TensorMetadata

from gpuprof.collectors.live.multiplied import MultipliedTensors
from gpuprof.collectors.recorded_lists import RecordedList, RecordedLists, beside


def write_tensor_lists(kineto_results: Any, trace: Path) -> None:
    """Write what all recorded operators were given beside `trace`, which is of the same profiler.

    Their lists of tensors, and which products take the same tensor.
    """
    found: dict[int, tuple[RecordedList | None, ...]] = {}
    multiplied = MultipliedTensors()
    # In the order of their calls, the next one last.
    waiting: list[tuple[Any, int | None]] = [
        (event, None) for event in _latest_first(kineto_results.experimental_event_tree())
    ]
    while waiting:
        event, around = waiting.pop()
        part_of = multiplied.add(event, around)
        waiting.extend((child, part_of) for child in _latest_first(event.children))
        if event.tag != _EventType.TorchOp:
            continue
        arguments = tuple(map(_recorded, event.extra_fields.inputs))
        if any(arguments):
            found[event.correlation_id] = arguments
    recorded = RecordedLists(found, multiplied.by_external_id)
    beside(trace).write_bytes(msgspec.json.encode(recorded))


def _latest_first(events: Iterable[Any]) -> list[Any]:
    return sorted(events, key=lambda event: -event.start_time_ns)


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
