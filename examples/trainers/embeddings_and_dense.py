"""A recommendation model as torchrec's: embedding bags and dense layers, an optimizer for each."""

import torch
from torch import nn

TABLES, ROWS, WIDTH, BATCH = 8, 10_000, 32, 512


class Recommender(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(
            nn.EmbeddingBag(ROWS, WIDTH, mode="sum", sparse=True) for _ in range(TABLES)
        )
        self.bottom = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, WIDTH))
        self.top = nn.Sequential(nn.Linear((TABLES + 1) * WIDTH, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        found = [table(rows) for table, rows in zip(self.tables, sparse, strict=True)]
        return self.top(torch.cat([self.bottom(dense), *found], dim=1)).squeeze(1)


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Recommender().to(device)
    of_tables = torch.optim.SparseAdam(list(model.tables.parameters()))
    dense_parameters = [*model.bottom.parameters(), *model.top.parameters()]
    of_dense = torch.optim.Adam(dense_parameters)
    for _ in range(40):
        dense = torch.randn(BATCH, 16, device=device)
        sparse = torch.randint(0, ROWS, (TABLES, BATCH, 10), device=device)
        clicked = torch.randint(0, 2, (BATCH,), device=device).float()
        loss = nn.functional.binary_cross_entropy_with_logits(model(dense, sparse), clicked)
        of_tables.zero_grad()
        of_dense.zero_grad()
        loss.backward()
        of_tables.step()
        of_dense.step()


if __name__ == "__main__":
    main()
