"""The training step of examples/train_transformer.py, without its loop."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from self_timing import run

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "examples"))

from train_transformer import CPU_SIZE, GPU_SIZE, Transformer

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZE, DTYPE = (GPU_SIZE, torch.bfloat16) if DEVICE == "cuda" else (CPU_SIZE, torch.float32)

torch.manual_seed(0)
model = Transformer(SIZE).to(DEVICE, DTYPE)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)


def step() -> None:
    tokens = torch.randint(SIZE.vocabulary, (SIZE.batch, SIZE.sequence + 1), device=DEVICE)
    logits = model(tokens[:, :-1])
    F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()


run(step, steps=24)
