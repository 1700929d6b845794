"""The encoder classifier of document 003: token and position vectors, encoder, mean, Linear.

The document states the encoder's sizes. This suite chose the vocabulary, learnt positions, the
mean over the tokens and AdamW.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from ddp_perf.core.subject import TextDataset
from ddp_perf.workloads.corpus import CLASSES
from ddp_perf.workloads.text import PADDING, text_batches
from ddp_perf.workloads.workload import Batch, BuildContext, Workload


class TextTransformer(nn.Module):
    """The model: tokens (batch, sequence), int64 → logits (batch, classes)."""

    def __init__(
        self,
        *,
        classes: int,
        max_seq_len: int,
        vocab_size: int,
        d_model: int,
        n_heads: int,
        num_layers: int,
        dim_feedforward: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, d_model, padding_idx=PADDING)
        self.positions = nn.Embedding(max_seq_len, d_model)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(d_model, n_heads, dim_feedforward, dropout, batch_first=True)
            for _ in range(num_layers)
        )
        self.classifier = nn.Linear(d_model, classes)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        padding = tokens.eq(PADDING)
        hidden = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for layer in self.layers:
            hidden = layer(hidden, src_key_padding_mask=padding)
        words = (~padding).unsqueeze(-1).to(hidden.dtype)
        logits: torch.Tensor = self.classifier((hidden * words).sum(1) / words.sum(1))
        return logits


def build(
    context: BuildContext,
    *,
    dataset: TextDataset,
    max_seq_len: int,
    vocab_size: int,
    d_model: int,
    n_heads: int,
    num_layers: int,
    dim_feedforward: int,
    dropout: float,
) -> Workload:
    """Build it with the texts of ``dataset``, cross-entropy and AdamW."""
    model = TextTransformer(
        classes=CLASSES[dataset],
        max_seq_len=max_seq_len,
        vocab_size=vocab_size,
        d_model=d_model,
        n_heads=n_heads,
        num_layers=num_layers,
        dim_feedforward=dim_feedforward,
        dropout=dropout,
    ).to(context.device)
    return Workload(
        model=model,
        batch=text_batches(context, dataset, vocab_size=vocab_size, max_seq_len=max_seq_len),
        loss=_loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-4),
        blocks=list(model.layers),
    )


def _loss(module: nn.Module, batch: Batch) -> torch.Tensor:
    tokens, classes = batch
    return functional.cross_entropy(module(tokens), classes)
