"""Ten benchmarks for measuring the gate itself, each of work that a model does.

One step repeats an operation; an injected slow-down adds repetitions, or, on a GPU, makes some of
them as a careless change would: an extra pass, a lost fusion, fp32 instead of bf16, small tiles,
launches one by one instead of a CUDA graph.
"""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

pytestmark = pytest.mark.gpuprof


def repeated(
    good: Callable[[], object], share: float, *, count: int, bad: Callable[[], object] | None = None
) -> Callable[[], None]:
    """`good` done `count` times; of an injection, more of it, or `bad` in place of some."""
    extra = round(count * share)

    def step() -> None:
        for _ in range(count + extra if bad is None else count - extra):
            good()
        if bad is not None:
            for _ in range(extra):
                bad()

    return step


def sizes(device: torch.device, on_gpu: int, on_cpu: int) -> int:
    """The size that suits `device`."""
    return on_gpu if device.type == "cuda" else on_cpu


def half(device: torch.device) -> torch.dtype:
    """The dtype that a GPU trains in; a CPU without matrix units emulates it."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def test_matmul(gpubench, device, injected) -> None:
    """Products; on a GPU the injection computes small ones in fp32 that could be in bf16."""
    n = sizes(device, 4096, 192)
    left, right = (torch.randn(n, n, device=device, dtype=half(device)) for _ in range(2))
    if device.type == "cpu":
        gpubench(repeated(lambda: torch.mm(left, right), injected, count=40))
        return
    small = left[:2304, :2304].contiguous()
    wide = small.float()
    narrow, fallback = (lambda: torch.mm(small, small)), (lambda: torch.mm(wide, wide))

    def step() -> None:
        for _ in range(40):
            torch.mm(left, right)
        repeated(narrow, injected, count=20, bad=fallback)()

    gpubench(step)


def test_linear_gelu(gpubench, device, injected) -> None:
    """A layer with its activation; the injection is an extra pass over some activations."""
    n = sizes(device, 4096, 128)
    x, weight = (torch.randn(n, n, device=device, dtype=half(device)) for _ in range(2))
    count = sizes(device, 40, 200)
    # Fourteen passes take as long as the layer (H100).
    extra = round(count * injected) * 14

    def step() -> None:
        for index in range(count):
            y = F.gelu(F.linear(x, weight))
            if index < extra:
                y.mul_(1.0001)

    gpubench(step)


def test_attention(gpubench, device, injected) -> None:
    """Causal attention; on a GPU the injection takes a slower kernel with other tiles."""
    s = sizes(device, 4096, 128)
    heads = sizes(device, 16, 4)
    q, k, v = (torch.randn(1, heads, s, 64, device=device, dtype=half(device)) for _ in range(3))

    def attend() -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def attend_slower() -> torch.Tensor:
        with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
            return attend()

    bad = attend_slower if device.type == "cuda" else None
    # It takes 3.8 times as long (H100).
    share = injected / 2.8 if bad is not None else injected
    gpubench(repeated(attend, share, count=40, bad=bad))


def test_layer_norm(gpubench, device, injected) -> None:
    """Normalised rows."""
    x = torch.randn(sizes(device, 16384, 16), 4096, device=device, dtype=half(device))
    count = sizes(device, 40, 200)
    gpubench(repeated(lambda: F.layer_norm(x, (4096,)), injected, count=count))


def test_softmax(gpubench, device, injected) -> None:
    """Rows of scores; on a GPU the injection does it in the steps that a fused kernel joins."""
    x = torch.randn(sizes(device, 16384, 16), 4096, device=device, dtype=half(device))

    def in_steps() -> torch.Tensor:
        shifted = torch.exp(x - x.amax(-1, keepdim=True))
        return shifted / shifted.sum(-1, keepdim=True)

    bad = in_steps if device.type == "cuda" else None
    # In steps it takes 2.7 times as long as fused (H100).
    share = injected / 1.7 if bad is not None else injected
    gpubench(repeated(lambda: torch.softmax(x, -1), share, count=100, bad=bad))


def test_convolution(gpubench, device, injected) -> None:
    """A 3 x 3 convolution."""
    side = sizes(device, 56, 14)
    x = torch.randn(sizes(device, 64, 2), 64, side, side, device=device, dtype=half(device))
    weight = torch.randn(64, 64, 3, 3, device=device, dtype=half(device))
    gpubench(repeated(lambda: F.conv2d(x, weight, padding=1), injected, count=40))


def test_embedding(gpubench, device, injected) -> None:
    """Rows looked up in a table."""
    rows = sizes(device, 32000, 1000)
    table = torch.randn(rows, sizes(device, 4096, 64), device=device, dtype=half(device))
    tokens = torch.randint(0, rows, (sizes(device, 16384, 1024),), device=device)
    count = sizes(device, 40, 200)
    gpubench(repeated(lambda: F.embedding(tokens, table), injected, count=count))


def test_reduction(gpubench, device, injected) -> None:
    """A sum along rows."""
    x = torch.randn(sizes(device, 16384, 16), 4096, device=device, dtype=half(device))
    gpubench(repeated(lambda: x.sum(-1), injected, count=sizes(device, 40, 400)))


def test_cumulative_sum(gpubench, device, injected) -> None:
    """Sums along rows up to each element, as sampling from probabilities takes them."""
    x = torch.randn(sizes(device, 16384, 16), 4096, device=device, dtype=half(device))
    count = sizes(device, 40, 100)
    gpubench(repeated(lambda: torch.cumsum(x, -1), injected, count=count))


def test_small_layers(gpubench, device, injected) -> None:
    """Many small layers; on a GPU in a CUDA graph, which the injection launches one by one."""
    x = torch.randn(16, 256, device=device)
    weights = [torch.randn(256, 256, device=device) for _ in range(20)]

    def layers() -> torch.Tensor:
        y = x
        for weight in weights:
            y = torch.tanh(y @ weight)
        return y

    if device.type != "cuda":
        gpubench(repeated(layers, injected, count=20))
        return
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        layers()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        layers()
    # Launched one by one they take 1.4 times as long (H100).
    gpubench(repeated(graph.replay, injected / 0.4, count=40, bad=layers))
