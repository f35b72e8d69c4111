"""Which products take the same tensor, as it was: a trace tells sizes of operands and no more.

Where it also records allocations the profiler numbers the storages that operators are given. Two
products with one storage need not take one tensor: something may have written to it between them,
or they take two slices. So a number here is of one object, and lasts until any other operator is
given that storage.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from torch._C._profiler import _EventType, _TensorMetadata

# Where the tensor that is multiplied with a weight stands (native_functions.yaml).
_POSITIONS: Final[Mapping[str, int]] = {
    "aten::linear": 0,
    "aten::matmul": 0,
    "aten::mm": 0,
    "aten::addmm": 1,
}


class MultipliedTensors:
    """Goes through the operators in the order of their calls."""

    def __init__(self) -> None:
        # By the External id of each product; equal numbers are the same tensor.
        self.by_external_id: dict[int, int] = {}
        self._numbers: dict[object, int] = {}
        self._used: Counter[int] = Counter()

    def add(self, event: Any, around: int | None) -> int | None:
        """Look at one operator. `around` is the number of the product that it is a part of.

        Returns what its own parts are to be given.
        """
        if event.tag != _EventType.TorchOp:
            return around
        inputs = event.extra_fields.inputs
        position = _POSITIONS.get(event.name)
        if position is None:
            if around is None:
                self._used.update(_storages(inputs))
            return around
        number = around
        if number is None and position < len(inputs):
            number = self._number(inputs[position])
        if number is not None:
            self.by_external_id[event.correlation_id] = number
        return number

    def _number(self, tensor: Any) -> int | None:
        if not isinstance(tensor, _TensorMetadata) or tensor.id is None:
            return None
        used = self._used[tensor.id]
        # Two views that both live are two objects; one made meanwhile has used the storage.
        key = (tensor.id, used, tensor.impl_ptr, tuple(tensor.sizes), tuple(tensor.strides))
        return self._numbers.setdefault(key, len(self._numbers))


def _storages(inputs: Iterable[Any]) -> Iterable[int]:
    """The storages of all tensors among the arguments of an operator."""
    for argument in inputs:
        for each in argument if isinstance(argument, list) else (argument,):
            if isinstance(each, _TensorMetadata) and each.id is not None:
                yield each.id
