"""What live optimizers say of their parameters."""

import gc
import weakref
from typing import Any

import pytest
import torch

from gpuprof.collectors.live.parameter_groups import live_optimizers, live_parameter_groups
from gpuprof.collectors.manifest import ParameterGroup


def parameters(*sizes: int, dtype: torch.dtype = torch.float32) -> list[torch.nn.Parameter]:
    return [
        torch.nn.Parameter(torch.zeros(size, dtype=dtype), requires_grad=dtype.is_floating_point)
        for size in sizes
    ]


@pytest.fixture(autouse=True)
def no_other_optimizers() -> None:
    """Optimizers of earlier tests are gone."""
    gc.collect()
    assert live_parameter_groups() == ()


def test_groups_have_their_sizes_types_and_weight_decay() -> None:
    decayed, plain = parameters(6, 4), parameters(3, dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    )
    assert live_parameter_groups() == (
        ParameterGroup(optimizer="AdamW", elements=10, dtype="float", weight_decay=0.1),
        ParameterGroup(optimizer="AdamW", elements=3, dtype="c10::BFloat16", weight_decay=0.0),
    )
    del optimizer


def test_a_group_of_two_types_is_two_groups() -> None:
    optimizer = torch.optim.SGD(parameters(2) + parameters(5, dtype=torch.float16) + parameters(1))
    found = {group.dtype: group.elements for group in live_parameter_groups()}
    assert found == {"float": 3, "c10::Half": 5}
    del optimizer


def test_frozen_parameters_do_not_count() -> None:
    trained, frozen = parameters(2, 30)
    frozen.requires_grad_(False)
    optimizer = torch.optim.SGD([trained, frozen])
    assert [group.elements for group in live_parameter_groups()] == [2]
    del optimizer


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
    assert live_parameter_groups() == ()
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
    assert live_parameter_groups() == ()
    del proxy


def test_an_optimizer_whose_constructor_raised_has_no_groups() -> None:
    with pytest.raises(TypeError) as caught:
        torch.optim.SGD(torch.zeros(3), lr=0.1)
    # The exception keeps the half-made optimizer alive, as it does when a script ends with it.
    assert len(live_optimizers()) == 1
    assert live_parameter_groups() == ()
    del caught
