"""The optimizers that are alive in a process."""

import gc
import weakref
from typing import Any

import pytest
import torch

from gpuprof.collectors.live.optimizers import live_optimizers


def parameters(*sizes: int) -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.zeros(size)) for size in sizes]


@pytest.fixture(autouse=True)
def no_other_optimizers() -> None:
    """Optimizers of earlier tests are gone."""
    gc.collect()
    assert live_optimizers() == []


def test_an_optimizer_that_is_gone_does_not_count() -> None:
    optimizer = torch.optim.SGD(parameters(2))
    assert live_optimizers() == [optimizer]
    del optimizer
    gc.collect()
    assert live_optimizers() == []


def test_a_proxy_whose_object_is_gone_is_passed_over() -> None:
    optimizer = torch.optim.SGD(parameters(2))
    proxy = weakref.proxy(optimizer)
    del optimizer
    gc.collect()
    assert live_optimizers() == []
    del proxy


def test_objects_are_not_asked_for_their_class() -> None:
    class Proxy:
        @property
        def __class__(self) -> Any:
            raise RuntimeError("asked")

        @__class__.setter
        def __class__(self, value: Any) -> None:
            raise RuntimeError("set")

    proxy = Proxy()
    assert live_optimizers() == []
    del proxy
