"""Llama-2-7B's MFU and MBU as gpuprof reports them, beside a calculation by hand.

    python tests/gpu/visit_models.py [--output FOLDER]

The model has Llama-2-7B's dimensions and random weights in bf16. A forward pass, a prefill,
decoding at two batch sizes and a training step each run twice: timed here by CUDA events alone, and
under `gpuprof.profile`. The figures by hand use the formulas below and nothing of gpuprof. Exits 1
where the two differ by more than 2 %. Without a GPU a tiny model checks the counts only.
"""

import argparse
import dataclasses
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import gpuprof
from gpuprof.roofline.analysis import Utilization

ON_GPU = torch.cuda.is_available()
DEVICE, DTYPE = ("cuda", torch.bfloat16) if ON_GPU else ("cpu", torch.float32)
# NVIDIA H100 SXM5: dense bf16 and DRAM, from the datasheet.
PEAK_FLOPS, PEAK_FLOPS_FP8, PEAK_BYTES = 989.4e12, 1978.9e12, 3.35e12
TOLERANCE = 0.02
WARMUP, STEPS = 3, 10


@dataclass(frozen=True)
class Size:
    """Dimensions of the model and of what it is given."""

    layers: int
    hidden: int
    heads: int
    feed_forward: int
    vocabulary: int
    prompt: int
    # (sequences, tokens in the cache) of the decoding steps.
    decodes: tuple[tuple[int, int], ...]


# 64 caches of 2,048 tokens are 69 GB, too many beside the weights on 80 GB.
LLAMA_2_7B = Size(32, 4096, 32, 11008, 32000, 2048, ((1, 2048), (64, 1024)))
TINY = Size(2, 64, 4, 172, 128, 32, ((1, 32), (4, 16)))
SIZE = LLAMA_2_7B if ON_GPU else TINY


# -- by hand ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ByHand:
    """Model FLOPs with attention in full, hardware FLOPs, and bytes to read; of one step."""

    model_flops: int
    hardware_flops: int
    bytes_read: int | None = None
    peak: float = PEAK_FLOPS


def weights(size: Size) -> int:
    """Query, key, value and output of each layer, its gate, up and down."""
    return size.layers * (4 * size.hidden**2 + 3 * size.hidden * size.feed_forward)


def attention(size: Size, queries: int, keys: int) -> int:
    """Scores and their product with the values, 2 operations a multiply-add, over all pairs."""
    return size.layers * 2 * 2 * queries * keys * size.hidden


def forward_by_hand(size: Size) -> ByHand:
    """Every position goes through every layer and the head."""
    tokens, head = size.prompt, size.hidden * size.vocabulary
    flops = 2 * tokens * (weights(size) + head) + attention(size, tokens, tokens)
    keys_values = 2 * size.layers * tokens * size.hidden
    return ByHand(flops, flops, DTYPE.itemsize * (weights(size) + head + keys_values))


def prefill_by_hand(size: Size) -> ByHand:
    """As the forward pass, with the head on the last position only."""
    tokens, head = size.prompt, size.hidden * size.vocabulary
    flops = 2 * tokens * weights(size) + 2 * head + attention(size, tokens, tokens)
    keys_values = 2 * size.layers * tokens * size.hidden
    return ByHand(flops, flops, DTYPE.itemsize * (weights(size) + head + keys_values))


def decode_by_hand(size: Size, batch: int, cached: int) -> ByHand:
    """One token a sequence: reads all weights, and the whole cache of each sequence."""
    head = size.hidden * size.vocabulary
    flops = 2 * batch * (weights(size) + head) + batch * attention(size, 1, cached)
    keys_values = 2 * size.layers * batch * cached * size.hidden
    return ByHand(flops, flops, DTYPE.itemsize * (weights(size) + head + keys_values))


def training_by_hand(size: Size) -> ByHand:
    """Backward is twice forward; flash attention computes the scores again."""
    forward = forward_by_hand(size).model_flops
    again = attention(size, size.prompt, size.prompt) // 2
    return ByHand(3 * forward, 3 * forward + again)


def checkpointed_by_hand(size: Size) -> ByHand:
    """Each layer's forward once more, but for its last product, whose result nothing asks for."""
    plain = training_by_hand(size)
    tokens = size.prompt
    # On a CPU the trace has that product too: it was called, and stopped before it computed.
    down = size.layers * size.hidden * size.feed_forward if ON_GPU else 0
    again = 2 * tokens * (weights(size) - down) + attention(size, tokens, tokens)
    return ByHand(plain.model_flops, plain.hardware_flops + again)


# -- the model ----------------------------------------------------------------------------------


class Block(nn.Module):
    """One pre-norm layer: attention with rotary embedding, SwiGLU."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.attention_norm = nn.RMSNorm(size.hidden)
        self.query_key_value = nn.Linear(size.hidden, 3 * size.hidden, bias=False)
        self.output = nn.Linear(size.hidden, size.hidden, bias=False)
        self.feed_forward_norm = nn.RMSNorm(size.hidden)
        self.gate_up = nn.Linear(size.hidden, 2 * size.feed_forward, bias=False)
        self.down = nn.Linear(size.feed_forward, size.hidden, bias=False)

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor], cache: Tensor | None) -> Tensor:
        """`cache` holds keys and values of all positions; the newest are x's and written to it."""
        batch, sequence, hidden = x.shape
        packed = self.query_key_value(self.attention_norm(x))
        # [3, batch, heads, sequence, head size]
        parts = packed.view(batch, sequence, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        query, key = rotate(parts[:2], angles)
        value = parts[2]
        if cache is not None:
            cache[0, :, :, -sequence:] = key
            cache[1, :, :, -sequence:] = value
            key, value = cache
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=sequence > 1)
        x = x + self.output(mixed.transpose(1, 2).reshape(batch, sequence, hidden))
        gate, up = self.gate_up(self.feed_forward_norm(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


def rotate(x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary position embedding."""
    first, second = x.chunk(2, -1)
    return x * angles[0] + torch.cat((-second, first), -1) * angles[1]


class Llama(nn.Module):
    """Embedding, layers, norm and an untied head."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size.vocabulary, size.hidden)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = nn.RMSNorm(size.hidden)
        self.head = nn.Linear(size.hidden, size.vocabulary, bias=False)
        half = size.hidden // size.heads // 2
        longest = max(size.prompt, *(cached for _, cached in size.decodes))
        angle = torch.arange(longest)[:, None] * 10000.0 ** (-torch.arange(half) / half)
        self.register_buffer("cosine", angle.cos().repeat(1, 2))
        self.register_buffer("sine", angle.sin().repeat(1, 2))

    def forward(
        self,
        tokens: Tensor,
        caches: Tensor | None = None,
        *,
        last_only: bool = False,
        checkpointed: bool = False,
    ) -> Tensor:
        end = tokens.shape[1] if caches is None else caches.shape[-2]
        angles = tuple(
            table[end - tokens.shape[1] : end].to(DTYPE) for table in (self.cosine, self.sine)
        )
        x = self.embedding(tokens)
        for index, block in enumerate(self.blocks):
            cache = None if caches is None else caches[index]
            if checkpointed:
                x = checkpoint(block, x, angles, cache, use_reentrant=False)
            else:
                x = block(x, angles, cache)
        return self.head(self.norm(x[:, -1:] if last_only else x))


def make_model(size: Size) -> Llama:
    """Random weights, small enough that 32 layers of them stay finite."""
    with torch.device(DEVICE):
        torch.set_default_dtype(DTYPE)
        model = Llama(size)
        torch.set_default_dtype(torch.float32)
    return model


# -- the visit ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One case: both figures, and whether they agree."""

    name: str
    by_hand: ByHand
    step_s: float
    # Of steps before gpuprof ran.
    alone_s: float
    found: Utilization
    stretch: float | None

    def ratios(self) -> dict[str, float]:
        """gpuprof's figure over that by hand, where gpuprof gives one."""
        found, hand = self.found, self.by_hand
        ratios = {
            "FLOPs": found.model_flops / hand.model_flops,
            "hardware FLOPs": (found.hardware_flops or 0) / hand.hardware_flops,
        }
        if found.mfu is not None:
            ratios["MFU"] = found.mfu / (hand.model_flops / self.step_s / hand.peak)
        if hand.bytes_read is not None:
            read = (found.weight_bytes or 0) + (found.key_value_bytes or 0)
            ratios["bytes"] = read / hand.bytes_read
        if found.mbu is not None and hand.bytes_read is not None:
            ratios["MBU"] = found.mbu / (hand.bytes_read / self.step_s / PEAK_BYTES)
        return ratios


class StepClock:
    """Step times by CUDA events, or the host's clock, with nothing of gpuprof."""

    def __init__(self) -> None:
        self._marks: list[torch.cuda.Event | float] = []

    def mark(self) -> None:
        """A step ends here and the next begins."""
        if not ON_GPU:
            self._marks.append(time.perf_counter())
            return
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._marks.append(event)

    def median_s(self) -> float:
        """The median time between marks."""
        if ON_GPU:
            torch.cuda.synchronize()
        return statistics.median(
            b - a if isinstance(b, float) else a.elapsed_time(b) / 1e3
            for a, b in pairwise(self._marks)
        )


def alone_s(step: Callable[[], object]) -> float:
    """Median step time where gpuprof does not run."""
    for _ in range(WARMUP):
        step()
    clock = StepClock()
    for _ in range(STEPS):
        clock.mark()
        step()
    clock.mark()
    return clock.median_s()


def compare(
    name: str, step: Callable[[], object], by_hand: ByHand, tokens: int, output: Path
) -> Row:
    """Time the steps that gpuprof times: a step that waits for its host differs by block."""
    without = alone_s(step)
    clock = StepClock()
    with gpuprof.profile(
        output / f"{name}.gpuprof",
        warmup=WARMUP,
        timed=STEPS,
        profiled=2,
        steps="explicit",
        force=True,
    ) as profiled:
        # One more than the phases: the profiler's own warm-up.
        for index in range(WARMUP + STEPS + 2 + 1):
            if WARMUP <= index < WARMUP + STEPS:
                clock.mark()
            step()
            gpuprof.step(tokens=tokens)
    analysis = profiled.analysis
    assert analysis is not None
    assert analysis.utilization is not None, analysis.warnings
    row = Row(
        name,
        by_hand,
        clock.median_s(),
        without,
        analysis.utilization,
        analysis.steps.profiler_stretch,
    )
    print_row(row)
    return row


def print_row(row: Row) -> None:
    """Both figures of one case."""
    found, hand = row.found, row.by_hand
    mbu_by_hand = None if hand.bytes_read is None else hand.bytes_read / row.step_s / PEAK_BYTES
    print(
        f"{row.name:12} alone {row.alone_s * 1e3:8.3f} ms | same steps "
        f"{row.step_s * 1e3:8.3f} ms, gpuprof {found.step_ns / 1e6:8.3f} ms | "
        f"MFU by hand {percent(hand.model_flops / row.step_s / hand.peak)}, "
        f"gpuprof {percent(found.mfu)} | HFU {percent(found.hfu)} | MBU by hand "
        f"{percent(mbu_by_hand)}, gpuprof {percent(found.mbu)}"
    )
    print(" " * 12, "ratios", {name: round(value, 5) for name, value in row.ratios().items()})
    print(" " * 12, "by hand", dataclasses.asdict(hand), f"stretch {row.stretch}", flush=True)


def percent(fraction: float | None) -> str:
    return "-" if fraction is None else f"{fraction:.2%}"


def decode_case(
    model: Llama, batch: int, cached: int, output: Path, rows: list[Row], *, graph: bool
) -> None:
    """One decoding step, run by the host and, as serving does it, replayed from a CUDA graph."""
    shape = (SIZE.layers, 2, batch, SIZE.heads, cached, SIZE.hidden // SIZE.heads)
    caches = torch.randn(shape, device=DEVICE, dtype=DTYPE)
    token = torch.randint(SIZE.vocabulary, (batch, 1), device=DEVICE)

    @torch.no_grad()
    def step() -> Tensor:
        return model(token, caches)

    by_hand = decode_by_hand(SIZE, batch, cached)
    rows.append(compare(f"decode-{batch}", step, by_hand, batch, output))
    if not (graph and ON_GPU):
        return
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        step()
    step_s = alone_s(recorded.replay)
    # A replay has no operators: its bytes are those of the same step run by the host.
    assert by_hand.bytes_read is not None
    print(
        f"decode-{batch}, CUDA graph: step {step_s * 1e3:.3f} ms, "
        f"MBU by hand {percent(by_hand.bytes_read / step_s / PEAK_BYTES)}",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path(os.environ.get("OUT", ".")))
    output: Path = parser.parse_args().output
    torch.manual_seed(0)
    started = time.perf_counter()
    model = make_model(SIZE)
    prompt = torch.randint(SIZE.vocabulary, (1, SIZE.prompt), device=DEVICE)
    head_size = SIZE.hidden // SIZE.heads
    rows: list[Row] = []
    problems: list[str] = []

    @torch.no_grad()
    def forward() -> Tensor:
        return model(prompt)

    def prefill_case() -> None:
        shape = (SIZE.layers, 2, 1, SIZE.heads, SIZE.prompt, head_size)
        caches = torch.empty(shape, device=DEVICE, dtype=DTYPE)

        @torch.no_grad()
        def prefill() -> Tensor:
            return model(prompt, caches, last_only=True)

        by_hand = prefill_by_hand(SIZE)
        rows.append(compare("prefill", prefill, by_hand, SIZE.prompt, output))

    def training_case(name: str, by_hand: ByHand, *, checkpointed: bool) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, foreach=True)

        def train() -> None:
            logits = model(prompt, checkpointed=checkpointed).flatten(0, 1)
            F.cross_entropy(logits, prompt.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()

        rows.append(compare(name, train, by_hand, SIZE.prompt, output))

    def fp8_case() -> None:
        if not ON_GPU:
            return
        products, edge = 8, 8192
        one = torch.ones((), device=DEVICE)
        left, right = (torch.randn(edge, edge, device=DEVICE).to(torch.float8_e4m3fn) for _ in "ab")

        def multiply() -> None:
            for _ in range(products):
                torch._scaled_mm(left, right.t(), one, one, out_dtype=torch.bfloat16)

        flops = products * 2 * edge**3
        by_hand = ByHand(flops, flops, peak=PEAK_FLOPS_FP8)
        rows.append(compare("fp8", multiply, by_hand, edge, output))

    for name, case in (
        (
            "forward",
            lambda: rows.append(
                compare("forward", forward, forward_by_hand(SIZE), SIZE.prompt, output)
            ),
        ),
        ("prefill", prefill_case),
        *(
            (
                f"decode-{batch}",
                lambda batch=batch, cached=cached: decode_case(
                    model, batch, cached, output, rows, graph=True
                ),
            )
            for batch, cached in SIZE.decodes
        ),
        (
            "training",
            lambda: training_case("training", training_by_hand(SIZE), checkpointed=False),
        ),
        (
            "checkpointed",
            lambda: training_case("checkpointed", checkpointed_by_hand(SIZE), checkpointed=True),
        ),
        ("fp8", fp8_case),
    ):
        begun = time.perf_counter()
        if ON_GPU:
            torch.cuda.empty_cache()
        try:
            case()
        # A visit is dear: the cases after a broken one still run.
        except Exception:
            traceback.print_exc()
            problems.append(f"{name} did not run")
        print(f"{name} took {time.perf_counter() - begun:.1f} s", flush=True)

    for row in rows:
        for what, ratio in row.ratios().items():
            if abs(ratio - 1) > TOLERANCE and (ON_GPU or what not in ("MFU", "MBU")):
                problems.append(f"{row.name}: {what} is {ratio:.4f} of that by hand")
    print(f"visit took {time.perf_counter() - started:.1f} s")
    for problem in problems:
        print(f"PROBLEM {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
