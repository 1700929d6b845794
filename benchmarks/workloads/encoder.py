"""A small text classifier as a user would write it: it computes all the time, and loads its data.

benchmarks/attribution_causes.py edits copies of this file. Each edit replaces lines that occur
once, so a changed line here may need another edit there.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset

from ddp_perf.workloads.workload import Batch, BuildContext, Workload, batches

SAMPLES, TOKENS, FEATURES, CLASSES = 4096, 64, 64, 10
WIDTH, HEADS, BLOCKS = 160, 4, 3
HIDDEN = 4 * WIDTH


class Texts(Dataset[Batch]):
    """Random features with a label. A sample depends on its index only."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Batch:
        generator = torch.Generator().manual_seed(index)
        features = torch.randn(TOKENS, FEATURES, generator=generator)
        return features, torch.tensor(index % CLASSES)


class Block(nn.Module):
    """A block: self-attention, then a feed-forward part."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(WIDTH)
        self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH)
        self.projection = nn.Linear(WIDTH, WIDTH)
        self.norm_2 = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, HIDDEN)
        self.down = nn.Linear(HIDDEN, WIDTH)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = hidden + self._attention(self.norm_1(hidden))
        inner = functional.gelu(self.up(self.norm_2(hidden)))
        return hidden + self.down(inner)

    def _attention(self, hidden: torch.Tensor) -> torch.Tensor:
        heads = self.query_key_value(hidden).unflatten(-1, (3, HEADS, -1))
        query, key, value = heads.permute(2, 0, 3, 1, 4)  # each (batch, head, token, width)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        out: torch.Tensor = self.projection(mixed.transpose(1, 2).flatten(2))
        return out


class Encoder(nn.Module):
    """The model: features (batch, token, feature) → logits (batch, class)."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Linear(FEATURES, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.classifier = nn.Linear(WIDTH, CLASSES)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(features)
        for block in self.blocks:
            hidden = block(hidden)
        logits: torch.Tensor = self.classifier(hidden.mean(dim=1))
        return logits


def loss_of(module: nn.Module, batch: Batch) -> torch.Tensor:
    """Return the mean cross-entropy of a batch."""
    features, labels = batch
    logits = module(features)
    return functional.cross_entropy(logits, labels)


def build(context: BuildContext) -> Workload:
    """Build it with SGD with momentum."""
    model = Encoder().to(context.device)
    return Workload(
        model=model,
        batch=batches(Texts(), context),
        loss=loss_of,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
        blocks=list(model.blocks),
    )
