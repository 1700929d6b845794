"""A decoder in the shape of Llama (Touvron et al. 2023): what large models are trained as today.

RMSNorm, rotary embedding, grouped queries (Llama 2 70B, Llama 3) and SwiGLU, without biases. Its
throughput is in tokens a second. The parameters are on the meta device until the strategy
allocates them, so FSDP trains a model that no rank has room for.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from ddp_perf.core.launch import Unit
from ddp_perf.workloads.workload import Batch, BuildContext, Synthetic, Workload, batches

_SAMPLES = 2**17
_INITIAL_SD = 0.02  # of every matrix
_NORM_EPS = 1e-5
_ROTARY_BASE = 10_000.0  # of Llama 1 and 2; the cost of a step does not depend on it


class LlamaBlock(nn.Module):
    """A block: causal self-attention of grouped queries, then SwiGLU, each after an RMSNorm."""

    def __init__(self, d_model: int, n_heads: int, n_kv_heads: int, dim_feedforward: int) -> None:
        super().__init__()
        self._n_heads, self._n_kv_heads = n_heads, n_kv_heads
        shared = d_model // n_heads * n_kv_heads
        self.norm_1 = nn.RMSNorm(d_model, eps=_NORM_EPS)
        self.query = nn.Linear(d_model, d_model, bias=False)
        self.key = nn.Linear(d_model, shared, bias=False)
        self.value = nn.Linear(d_model, shared, bias=False)
        self.projection = nn.Linear(d_model, d_model, bias=False)
        self.norm_2 = nn.RMSNorm(d_model, eps=_NORM_EPS)
        self.gate = nn.Linear(d_model, dim_feedforward, bias=False)
        self.up = nn.Linear(d_model, dim_feedforward, bias=False)
        self.down = nn.Linear(dim_feedforward, d_model, bias=False)

    def forward(self, hidden: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        """Return (batch, token, width) of the same; ``turns`` is that of `_turns`."""
        hidden = hidden + self._attention(self.norm_1(hidden), turns)
        normed = self.norm_2(hidden)
        out: torch.Tensor = hidden + self.down(functional.silu(self.gate(normed)) * self.up(normed))
        return out

    def _attention(self, hidden: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        # With enable_gqa, FP32 would take the kernel that keeps the whole softmax.
        of_each_key = self._n_heads // self._n_kv_heads
        queries = _turned(_heads(self.query(hidden), self._n_heads), turns)
        keys = _turned(_heads(self.key(hidden), self._n_kv_heads), turns)
        values = _heads(self.value(hidden), self._n_kv_heads)
        mixed = functional.scaled_dot_product_attention(
            queries,
            keys.repeat_interleave(of_each_key, dim=1),
            values.repeat_interleave(of_each_key, dim=1),
            is_causal=True,
        )
        out: torch.Tensor = self.projection(mixed.transpose(1, 2).flatten(2))
        return out


class Llama(nn.Module):
    """The model: tokens (batch, sequence), int64 → logits (batch, sequence, vocabulary)."""

    def __init__(
        self,
        *,
        vocab_size: int,
        d_model: int,
        n_heads: int,
        n_kv_heads: int,
        num_layers: int,
        dim_feedforward: int,
    ) -> None:
        super().__init__()
        self._head_width = d_model // n_heads
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.blocks = nn.ModuleList(
            LlamaBlock(d_model, n_heads, n_kv_heads, dim_feedforward) for _ in range(num_layers)
        )
        self.norm = nn.RMSNorm(d_model, eps=_NORM_EPS)
        self.head = nn.Linear(d_model, vocab_size, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.tokens(tokens)
        turns = _turns(tokens.shape[1], self._head_width, hidden)
        for block in self.blocks:
            hidden = block(hidden, turns)
        logits: torch.Tensor = self.head(self.norm(hidden))
        return logits


def _heads(vectors: torch.Tensor, n_heads: int) -> torch.Tensor:
    """Return (batch, head, token, width) of (batch, token, heads × width)."""
    return vectors.view(*vectors.shape[:2], n_heads, -1).transpose(1, 2)


def _turns(length: int, width: int, like: torch.Tensor) -> torch.Tensor:
    """Return the cosines and the sines of each position, (2, token, width ÷ 2), as ``like``."""
    pairs = torch.arange(0, width, 2, device=like.device, dtype=torch.float32) / width
    positions = torch.arange(length, device=like.device, dtype=torch.float32)
    angles = torch.outer(positions, _ROTARY_BASE**-pairs)
    return torch.stack([angles.cos(), angles.sin()]).to(like.dtype)


def _turned(heads: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Return queries or keys, with each pair of their values turned by the angle of its place."""
    cosines, sines = turns.to(heads.dtype)
    first, second = heads.chunk(2, dim=-1)
    return torch.cat([first * cosines - second * sines, first * sines + second * cosines], dim=-1)


def build(
    context: BuildContext,
    *,
    max_seq_len: int,
    vocab_size: int,
    d_model: int,
    n_heads: int,
    n_kv_heads: int,
    num_layers: int,
    dim_feedforward: int,
) -> Workload:
    """Build it with random tokens, the cross-entropy of the next token, and AdamW."""
    with torch.device("meta"):
        model = Llama(
            vocab_size=vocab_size,
            d_model=d_model,
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            num_layers=num_layers,
            dim_feedforward=dim_feedforward,
        )

    def sample(generator: torch.Generator) -> Batch:
        return (torch.randint(vocab_size, (max_seq_len + 1,), generator=generator),)

    return Workload(
        model=model,
        fill=_fill,
        batch=batches(Synthetic(_SAMPLES, sample), context),
        loss=_loss,
        optimizer=lambda parameters: torch.optim.AdamW(
            parameters, lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1
        ),
        blocks=list(model.blocks),
        unit=Unit(name="tokens", per_sample=max_seq_len),
    )


def _fill(name: str, parameter: torch.Tensor) -> None:
    if parameter.dim() == 1:  # of an RMSNorm
        parameter.fill_(1)
    else:
        parameter.normal_(std=_INITIAL_SD)


def _loss(module: nn.Module, batch: Batch) -> torch.Tensor:
    """Return the mean cross-entropy of each token, predicted from the tokens before it."""
    (tokens,) = batch
    logits = module(tokens[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
