"""Modules of the reference suite, with a skip where the installed Triton is too old for one."""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

import pytest

from gpuprof.reference_kernels.suite import Version

HAS_TENSOR_DESCRIPTORS = find_spec("triton.tools.tensor_descriptor") is not None
needs_newer_triton = pytest.mark.skipif(not HAS_TENSOR_DESCRIPTORS, reason="needs Triton 3.4")


def can_interpret(version: Version) -> bool:
    """Whether the Triton here has what `version` is written with, and an interpreter that works.

    That of 3.2 makes numbers of arrays in a way that numpy has given up.
    """
    return HAS_TENSOR_DESCRIPTORS or not {"triton", "triton>=3.4"} & {*version.requires}


def module_of(version: Version) -> ModuleType:
    """The module of `version`."""
    if not can_interpret(version):
        pytest.skip("needs Triton 3.4")
    return import_module(version.module)
