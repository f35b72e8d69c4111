"""Products on one stream while another brings the next batch from pinned memory."""

import torch
from loop import DEVICE, ON_GPU, run
from torch import nn

SIZE = 8192 if ON_GPU else 128


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        dtype = torch.bfloat16 if ON_GPU else torch.float32
        self.weight = nn.Parameter(torch.randn(SIZE, SIZE, device=DEVICE, dtype=dtype))
        self.x = torch.randn(SIZE, SIZE, device=DEVICE, dtype=dtype)
        self.batch = torch.randn(SIZE, SIZE // 2, dtype=dtype, pin_memory=ON_GPU)
        self.landing = torch.empty_like(self.batch, device=DEVICE)
        self.copies = torch.cuda.Stream() if ON_GPU else None

    def forward(self) -> None:
        if self.copies is not None:
            self.copies.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.copies):
                self.landing.copy_(self.batch, non_blocking=True)
        for _ in range(4):
            self.x @ self.weight
        if self.copies is not None:
            torch.cuda.current_stream().wait_stream(self.copies)


model = Model()
with torch.no_grad():
    run(model)
