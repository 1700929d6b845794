"""Small models and their samples, equal in the ranks and in the reference."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

FEATURES, WIDTH, OUTPUTS = 12, 16, 3
GLOBAL_BATCH = 8  # samples of all ranks together, for any number of ranks


class Mlp(nn.Sequential):
    """A network like the suite's own: the model and its blocks are of torch's own classes."""

    def __init__(self) -> None:
        layers = [nn.Linear(FEATURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU()]
        super().__init__(*layers, nn.Linear(WIDTH, OUTPUTS))

    @property
    def blocks(self) -> list[nn.Module]:
        return [self[0], self[2]]


class Linear(nn.Linear):
    """A convex problem: the least loss is 0 for any batch, at one known matrix."""

    def __init__(self) -> None:
        super().__init__(FEATURES, OUTPUTS)


class Transformer(nn.Module):
    """Blocks with attention and normalisation; an embedding and a head outside of them."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(FEATURES // 4, WIDTH)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                WIDTH, nhead=2, dim_feedforward=24, dropout=0.0, batch_first=True
            )
            for _ in range(2)
        )
        self.head = nn.Linear(WIDTH, OUTPUTS)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(inputs.unflatten(1, (4, -1)))
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden.mean(1))


class Normalised(nn.Module):
    """BatchNorm first: its statistics are those of the samples and depend on no parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(FEATURES)
        self.linear = nn.Linear(FEATURES, OUTPUTS)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.linear(self.norm(inputs))


class PartlyUsed(nn.Module):
    """A model with a layer that no forward uses."""

    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(FEATURES, OUTPUTS)
        self.unused = nn.Linear(FEATURES, OUTPUTS)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.used(inputs)


class Wide(nn.Sequential):
    """A model of more than 16 MiB in float32, in four blocks: worth sharding."""

    def __init__(self) -> None:
        super().__init__(
            nn.Linear(FEATURES, 1024),
            *(nn.Linear(1024, 1024) for _ in range(4)),
            nn.Linear(1024, OUTPUTS),
        )

    @property
    def blocks(self) -> list[nn.Module]:
        return list(self)[1:-1]


MODELS = {
    model.__name__: model for model in (Linear, Mlp, Transformer, Normalised, PartlyUsed, Wide)
}


def build_model(name: str, dtype: str, seed: int = 0) -> nn.Module:
    """Build a model, initialised in float32 for any dtype, so that all have the same values."""
    torch.manual_seed(seed)
    return MODELS[name]().to(getattr(torch, dtype))


def global_batch(step: int, dtype: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a micro-step's inputs (GLOBAL_BATCH, FEATURES), targets (GLOBAL_BATCH, OUTPUTS)."""
    generator = torch.Generator().manual_seed(1000 + step)
    inputs = torch.randn(GLOBAL_BATCH, FEATURES, generator=generator, dtype=torch.float64)
    targets = inputs.unflatten(1, (OUTPUTS, -1)).sum(-1)  # a function that can be learnt
    return inputs.to(getattr(torch, dtype)), targets.to(getattr(torch, dtype))


def loss_of(module: nn.Module, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Return a tenth of the squared error. GradScaler's first scale × it fits into float16."""
    inputs, targets = batch
    return functional.mse_loss(module(inputs), targets) / 10


def optimizer_of(parameters) -> torch.optim.Optimizer:
    """Return SGD with momentum: a step depends on those before, and on the gradient's scale."""
    return torch.optim.SGD(parameters, lr=1.0, momentum=0.5)
