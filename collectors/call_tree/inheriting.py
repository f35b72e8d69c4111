"""What rows of a tree take over from those above them."""

from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from gpuprof.collectors.call_tree.nesting import NONE, Integers

# The code of a row about which nothing is known.
UNKNOWN: Final = 0
_Code = TypeVar("_Code", bound=np.signedinteger[Any])


def inherit(codes: npt.NDArray[_Code], parent: Integers) -> npt.NDArray[_Code]:
    """Give each row of code 0 that of its nearest ancestor with another; -1 in `parent` is none.

    Each pass looks twice as far up, so deep trees take few passes.
    """
    above = parent
    while (above != NONE).any():
        found = np.where(above != NONE, codes[above], UNKNOWN).astype(codes.dtype)
        codes = np.where(codes == UNKNOWN, found, codes)
        # Row NONE (the last) is read where there is nothing above, and put right.
        above = np.where(above != NONE, above[above], NONE)
    return codes
