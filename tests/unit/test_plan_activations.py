"""The activations that plans count are the tensors that torch's autograd keeps."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpuprof.roofline.plan.decoder import DecoderShape
from gpuprof.roofline.plan.layout import ParallelLayout, TrainingJob
from gpuprof.roofline.plan.memory import layer_activations

TOKENS, WIDTH, HEADS, HEAD, INNER = 256, 128, 4, 32, 352
EXPERTS, CHOSEN = 4, 2


def linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


class Mlp(nn.Module):
    def __init__(self, gated: bool) -> None:
        super().__init__()
        self.up, self.down = linear(WIDTH, INNER), linear(INNER, WIDTH)
        self.gate = linear(WIDTH, INNER) if gated else None

    def forward(self, x: Tensor) -> Tensor:
        inner: Tensor
        if self.gate is None:
            inner = F.gelu(self.up(x))
        else:
            inner = F.silu(self.gate(x)) * self.up(x)
        out: Tensor = self.down(inner)
        return out


class Layer(nn.Module):
    """A decoder's layer with LayerNorm, which keeps its input and two numbers a token."""

    def __init__(self, gated: bool, fused: bool) -> None:
        super().__init__()
        self.query, self.key, self.value = (linear(WIDTH, HEADS * HEAD) for _ in range(3))
        self.out = linear(HEADS * HEAD, WIDTH)
        self.mlp = Mlp(gated)
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.fused = fused

    def forward(self, x: Tensor) -> Tensor:
        y = self.norms[0](x)
        q, k, v = (
            each(y).view(1, TOKENS, HEADS, HEAD).transpose(1, 2)
            for each in (self.query, self.key, self.value)
        )
        if self.fused:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mixed = torch.softmax(q @ k.transpose(2, 3), -1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(1, TOKENS, HEADS * HEAD))
        out: Tensor = x + self.mlp(self.norms[1](x))
        return out


def kept_bytes(module: nn.Module, x: Tensor) -> int:
    """Bytes of all storages but parameters that a forward pass keeps for the backward pass."""
    parameters = {each.untyped_storage().data_ptr() for each in module.parameters()}
    kept: dict[int, int] = {}
    # A storage that is freed meanwhile could lend its address to another.
    alive = []

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        alive.append(storage)
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        module(x)
    return sum(kept.values())


def planned(gated: bool, fused: bool) -> int:
    decoder = DecoderShape(
        **{"layers": 1, "hidden": WIDTH, "heads": HEADS, "key_heads": HEADS, "head_size": HEAD},
        inner=INNER,
        vocabulary=1,
        gated=gated,
    )
    job = TrainingJob(sequence=TOKENS, batch=1, activation_bytes=4, fused_attention=fused)
    return layer_activations(decoder, job, ParallelLayout())


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "unfused"])
@pytest.mark.parametrize("gated", [True, False], ids=["gated", "plain"])
def test_a_layer_keeps_what_is_planned(gated: bool, fused: bool) -> None:
    x = torch.randn(1, TOKENS, WIDTH, requires_grad=True)
    # Mean and deviation of each token, of two norms.
    norms = 2 * 2 * TOKENS * 4
    assert kept_bytes(Layer(gated, fused), x) == planned(gated, fused) + norms


def test_a_mixture_keeps_the_tokens_of_each_expert() -> None:
    """All experts get equally many tokens: each is kept once before and once after its expert."""
    experts = [Mlp(gated=True) for _ in range(EXPERTS)]
    tokens = TOKENS * CHOSEN // EXPERTS
    sent = [torch.randn(tokens, WIDTH, requires_grad=True) for _ in experts]
    kept = sum(kept_bytes(expert, x) for expert, x in zip(experts, sent, strict=True))
    back = TOKENS * CHOSEN * WIDTH * 4
    router = TOKENS * (WIDTH + EXPERTS) * 4
    dense = {"layers": 1, "hidden": WIDTH, "heads": HEADS, "key_heads": HEADS, "head_size": HEAD}
    decoder = DecoderShape(
        **dense, inner=INNER, vocabulary=1, experts=EXPERTS, experts_per_token=CHOSEN
    )
    job = TrainingJob(sequence=TOKENS, batch=1, activation_bytes=4)
    mlp = planned(gated=True, fused=True) - TOKENS * (WIDTH + 4 * INNER) * 4
    assert layer_activations(decoder, job, ParallelLayout()) == mlp + kept + back + router
