"""A decoder in the shape of GPT-2 (Radford et al. 2019): pre-norm blocks, tied embedding.

Its throughput is in tokens a second. It has no dropout, as is usual in pre-training today.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from ddp_perf.core.launch import Unit
from ddp_perf.workloads.workload import Batch, BuildContext, Synthetic, Workload, batches

_SAMPLES = 2**17
_INITIAL_SD = 0.02  # as in GPT-2


class Block(nn.Module):
    """A block: causal self-attention, then a feed-forward part four times as wide."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self._n_heads = n_heads
        self.norm_1 = nn.LayerNorm(d_model)
        self.query_key_value = nn.Linear(d_model, 3 * d_model)
        self.projection = nn.Linear(d_model, d_model)
        self.norm_2 = nn.LayerNorm(d_model)
        self.feed_forward = nn.Sequential(
            nn.Linear(d_model, 4 * d_model),
            nn.GELU(approximate="tanh"),
            nn.Linear(4 * d_model, d_model),
        )

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = hidden + self._attention(self.norm_1(hidden))
        out: torch.Tensor = hidden + self.feed_forward(self.norm_2(hidden))
        return out

    def _attention(self, hidden: torch.Tensor) -> torch.Tensor:
        heads = self.query_key_value(hidden).unflatten(-1, (3, self._n_heads, -1))
        query, key, value = heads.permute(2, 0, 3, 1, 4)  # each (batch, head, token, width)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        out: torch.Tensor = self.projection(mixed.transpose(1, 2).flatten(2))
        return out


class Gpt(nn.Module):
    """The model: tokens (batch, sequence), int64 → logits (batch, sequence, vocabulary)."""

    def __init__(
        self, *, max_seq_len: int, vocab_size: int, d_model: int, n_heads: int, num_layers: int
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_seq_len, d_model)
        self.blocks = nn.ModuleList(Block(d_model, n_heads) for _ in range(num_layers))
        self.norm = nn.LayerNorm(d_model)
        self.apply(_initialise)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            hidden = block(hidden)
        return functional.linear(self.norm(hidden), self.tokens.weight)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=_INITIAL_SD)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def build(
    context: BuildContext,
    *,
    max_seq_len: int,
    vocab_size: int,
    d_model: int,
    n_heads: int,
    num_layers: int,
) -> Workload:
    """Build it with random tokens, the cross-entropy of the next token, and AdamW."""
    model = Gpt(
        max_seq_len=max_seq_len,
        vocab_size=vocab_size,
        d_model=d_model,
        n_heads=n_heads,
        num_layers=num_layers,
    ).to(context.device)

    def sample(generator: torch.Generator) -> Batch:
        return (torch.randint(vocab_size, (max_seq_len + 1,), generator=generator),)

    return Workload(
        model=model,
        batch=batches(Synthetic(_SAMPLES, sample), context),
        loss=_loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=6e-4),
        blocks=list(model.blocks),
        unit=Unit(name="tokens", per_sample=max_seq_len),
    )


def _loss(module: nn.Module, batch: Batch) -> torch.Tensor:
    """Return the mean cross-entropy of each token, predicted from the tokens before it."""
    (tokens,) = batch
    logits = module(tokens[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
