"""What is read off the model that a process holds."""

import gc
from collections.abc import Callable

import pytest
import torch
from torch import nn

from gpuprof.collectors.live import model_parameters
from gpuprof.collectors.manifest import ModelParameters


class Language(nn.Module):
    """Embedding, two layers, a norm and a head."""

    def __init__(self, *, tied: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.norm = nn.LayerNorm(4)
        self.head = nn.Linear(4, 10, bias=False)
        if tied:
            self.head.weight = self.embedding.weight


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ModelParameters | None]:
    """`live_model` of a process that holds only these modules."""

    def look(*modules: nn.Module) -> ModelParameters | None:
        held = [inner for module in modules for inner in module.modules()]
        monkeypatch.setattr(gc, "get_objects", lambda: [*held, object()])
        return model_parameters.live_model()

    return look


def counted(model: ModelParameters | None) -> dict[tuple[str, tuple[int, ...], bool], int]:
    assert model is not None
    return {(s.role, s.shape, s.trainable): s.count for s in model.shapes}


def test_parameters_are_counted_by_role_and_shape(
    live: Callable[..., ModelParameters | None],
) -> None:
    model = live(Language())
    assert model is not None
    assert model.name == "Language"
    assert counted(model) == {
        ("embedding", (10, 4), True): 1,
        ("matrix", (4, 4), True): 2,
        ("other", (4,), True): 4,
        ("matrix", (10, 4), True): 1,
    }


def test_a_tied_embedding_is_a_matrix_and_counts_once(
    live: Callable[..., ModelParameters | None],
) -> None:
    assert counted(live(Language(tied=True))) == {
        ("matrix", (10, 4), True): 1,
        ("matrix", (4, 4), True): 2,
        ("other", (4,), True): 4,
    }


def test_frozen_parameters_and_convolutions_are_kept_apart(
    live: Callable[..., ModelParameters | None],
) -> None:
    model = nn.Sequential(nn.Conv1d(3, 4, 2, bias=False), nn.Linear(4, 4, bias=False))
    model[1].weight.requires_grad_(False)
    assert counted(live(model)) == {
        ("convolution", (4, 3, 2), True): 1,
        ("matrix", (4, 4), False): 1,
    }


def test_modules_without_parameters_do_not_count_as_models(
    live: Callable[..., ModelParameters | None],
) -> None:
    assert live(nn.Linear(2, 2), nn.CrossEntropyLoss()) is not None
    assert live(nn.CrossEntropyLoss()) is None


def test_of_two_models_none_is_the_model(live: Callable[..., ModelParameters | None]) -> None:
    assert live(nn.Linear(2, 2), nn.Linear(2, 2)) is None


def test_parameters_of_an_unknown_kind_leave_the_model_out(
    live: Callable[..., ModelParameters | None],
) -> None:
    # As FSDP's flat parameters and DTensor are.
    class Sharded(nn.Parameter):
        pass

    model = nn.Linear(2, 2)
    model.weight = Sharded(torch.zeros(2, 2))
    assert live(model) is None
