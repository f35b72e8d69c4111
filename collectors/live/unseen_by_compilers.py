"""Keeps what the interpreter calls for us out of sight of torch.compile.

Inside a compiled program dynamo looks at every Python function that is called, and compiles it:
also a trace function of ours.
"""

from collections.abc import Callable
from typing import Any

import torch


def hide_from_compilers(*functions: Callable[..., Any]) -> None:
    """Have dynamo run `functions` as they are, but not what they call.

    Imports nothing of the compiler.
    """
    native: Any = torch._C._dynamo.eval_frame
    for function in functions:
        code = function.__code__
        if hasattr(native, "skip_code"):
            native.skip_code(code)
        else:
            # Later than torch 2.7.
            action = native._FrameAction
            strategy = native._FrameExecStrategy(action.SKIP, action.DEFAULT)
            native.set_code_exec_strategy(code, strategy)
