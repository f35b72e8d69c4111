"""Files with pickles that hold nothing but data."""

import struct
from collections.abc import Iterable
from typing import Any

from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.files.memory_limit import MOST_BYTES
from gpuprof.collectors.files.pickle_machine import NotData, PickleMachine, Replacing, TooMuchData
from gpuprof.collectors.files.source import ByteSource, damaged


def load_data(
    content: Iterable[bytes], most_bytes: int = MOST_BYTES, replacing: Replacing | None = None
) -> Any:
    """The one object in `content`, which comes in pieces.

    Raises `NotData` where it is not all data, damaged, or would take more than `most_bytes`.
    """
    machine = PickleMachine(iter(content), most_bytes, replacing)
    try:
        return machine.run()
    except NotData:
        raise
    # What damaged instructions do: read past the end, take from an empty stack, fill a number.
    except (IndexError, KeyError, TypeError, ValueError, AttributeError, struct.error) as error:
        raise NotData("it is damaged or cut off", machine.place) from error


def data_of(
    source: ByteSource, *, expected: str, remedy: str, replacing: Replacing | None = None
) -> Any:
    """The object in a file.

    Raises `CaptureError` where it is not all data, or damaged, and with `remedy` where it would
    take more than `MOST_BYTES`.
    """
    pieces = iter(source)
    try:
        data = load_data(pieces, MOST_BYTES, replacing)
        # The end of a compressed file tells whether it is whole.
        for _ in pieces:
            pass
    except NotData as error:
        if source.problem:
            raise damaged(source) from error
        told = {"remedy": remedy} if isinstance(error, TooMuchData) else {"expected": expected}
        place = f"byte {error.position}"
        raise CaptureError(source.path, error.problem, place=place, **told) from error
    if source.problem:
        raise damaged(source)
    return data
