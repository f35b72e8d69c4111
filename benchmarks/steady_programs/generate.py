"""Decoding one token at a time with Hugging Face's cache: the first tokens plan their kernels."""

import torch
from loop import DEVICE, ON_GPU, run
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(
    hidden_size=2048 if ON_GPU else 32,
    intermediate_size=5632 if ON_GPU else 64,
    num_hidden_layers=16 if ON_GPU else 2,
    num_attention_heads=32 if ON_GPU else 2,
    vocab_size=32000 if ON_GPU else 128,
    max_position_embeddings=8192,
)
model = LlamaForCausalLM(config).to(DEVICE, torch.bfloat16 if ON_GPU else torch.float32).eval()
tokens = torch.randint(0, config.vocab_size, (8, 64), device=DEVICE)
past = None


def step() -> None:
    global tokens, past
    with torch.no_grad():
        out = model(tokens, past_key_values=past, use_cache=True)
    past = out.past_key_values
    tokens = out.logits[:, -1:].argmax(-1)


run(step)
