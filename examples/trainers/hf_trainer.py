"""Hugging Face Trainer: a small Llama of random weights, gradients accumulated over micro-batches.

hf_trainer.py [MICRO_BATCHES], 1 by default.
"""

import sys
import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


class RandomTokens(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(0, 512, (64,))
        return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    micro_batches = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=micro_batches,
            max_steps=24,
            logging_steps=8,
            save_strategy="no",
            report_to="none",
            use_cpu=not torch.cuda.is_available(),
        )
        Trainer(LlamaForCausalLM(config), arguments, train_dataset=RandomTokens()).train()


if __name__ == "__main__":
    main()
