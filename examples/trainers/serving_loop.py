"""A server's loop as vLLM's: requests come and go, each iteration makes one token for all of them.

gpuprof run --step-range "execute model" serving_loop.py
"""

import random
from dataclasses import dataclass

import nvtx
import torch
from torch import nn

VOCABULARY, WIDTH = 512, 256


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.SiLU(), nn.Linear(4 * WIDTH, WIDTH)
        )
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.embedding(tokens)))


@dataclass
class Request:
    tokens: list[int]
    wanted: int


class Engine:
    def __init__(self) -> None:
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = Model().to(self.device).eval()
        self.running: list[Request] = []

    def step(self) -> None:
        """One iteration: prompts of new requests in full, one token of each old one."""
        tokens = [token for request in self.running for token in request.tokens]
        with nvtx.annotate("execute model"):
            logits = self.model(torch.tensor(tokens, device=self.device))
        last = torch.tensor([len(request.tokens) for request in self.running]).cumsum(0) - 1
        chosen = logits[last.to(self.device)].argmax(dim=1).tolist()
        for request, token in zip(self.running, chosen, strict=True):
            request.tokens, request.wanted = [token], request.wanted - 1
        self.running = [request for request in self.running if request.wanted]


@torch.inference_mode()
def main() -> None:
    random.seed(0)
    engine = Engine()
    for _ in range(60):
        while len(engine.running) < 16:
            prompt = [random.randrange(VOCABULARY) for _ in range(random.randrange(16, 64))]
            engine.running.append(Request(prompt, wanted=random.randrange(4, 24)))
        engine.step()


if __name__ == "__main__":
    main()
