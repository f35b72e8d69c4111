"""What rows of a tree take over from those above them."""

from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from gpuprof.collectors.call_tree.nesting import NONE, Integers, contiguous
from gpuprof.collectors.native import compiled

# The code of a row about which nothing is known.
UNKNOWN: Final = 0
_Code = TypeVar("_Code", bound=np.signedinteger[Any])


def inherit(codes: npt.NDArray[_Code], parent: Integers) -> npt.NDArray[_Code]:
    """Give each row of code 0 that of its nearest ancestor with another; -1 in `parent` is none."""
    if compiled is not None:
        found = compiled.inherit(contiguous(codes), contiguous(parent))
        # Parents that a capture names itself may stand anywhere.
        if found is not None:
            return np.frombuffer(found, np.int64).astype(codes.dtype, copy=False)
    return inherit_in_python(codes, parent)


def inherit_in_python(codes: npt.NDArray[_Code], parent: Integers) -> npt.NDArray[_Code]:
    """`inherit` without compiled code: each pass looks twice as far up, so there are few."""
    above = parent
    while (above != NONE).any():
        found = np.where(above != NONE, codes[above], UNKNOWN).astype(codes.dtype)
        codes = np.where(codes == UNKNOWN, found, codes)
        # Row NONE (the last) is read where there is nothing above, and put right.
        above = np.where(above != NONE, above[above], NONE)
    return codes
