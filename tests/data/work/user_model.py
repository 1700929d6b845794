"""A small language model as a user writes one. The tests of the work gate edit its lines."""

import torch
from torch import nn
from torch.nn import functional

from ddp_perf.workloads.workload import Batch, BuildContext, Workload

WIDTH, HEADS, VOCABULARY, LENGTH = 64, 4, 256, 32
LAST = []


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mixed = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        batch, length, width = hidden.shape
        mixed = self.mixed(hidden).view(batch, length, 3, HEADS, width // HEADS)
        query, key, value = mixed.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value)
        joined = attended.transpose(1, 2).reshape(batch, length, width)
        return self.out(joined)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.feed_forward = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH),
            nn.GELU(),
            nn.Linear(4 * WIDTH, WIDTH),
        )

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = hidden + self.attention(self.norm(hidden))
        return hidden + self.feed_forward(hidden)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.register_buffer("scale", torch.ones(WIDTH))
        self.blocks = nn.ModuleList([Block() for _ in range(3)])
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(tokens) * self.scale
        for block in self.blocks:
            hidden = block(hidden)
        logits = self.head(hidden)
        return logits  # noqa: RET504 – tests add lines before it


class Optimizer(torch.optim.AdamW):
    def zero_grad(self, set_to_none=True):
        super().zero_grad(set_to_none=True)

    def step(self, closure=None):
        return super().step(closure)


def loss(module: nn.Module, batch: Batch) -> torch.Tensor:
    tokens, targets = batch
    logits = module(tokens)
    losses = functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    return losses  # noqa: RET504


def build(context: BuildContext) -> Workload:
    model = Model().to(context.device)
    shape = (context.batch_size, LENGTH)
    tokens = torch.randint(VOCABULARY, shape, device=context.device)
    targets = torch.randint(VOCABULARY, shape, device=context.device)
    return Workload(
        model=model,
        batch=(tokens, targets),
        loss=loss,
        optimizer=lambda parameters: Optimizer(parameters, lr=1e-3, foreach=True),
        blocks=list(model.blocks),
    )
