"""DistilBERT for sequence classification, as transformers builds it from its configuration.

Document 002 fine-tunes it on AG News with batch 32 and a learning rate of 2e-5. It states no
optimizer, no precision and no sequence length. This suite chose AdamW, one dropout rate for all
layers, and 128 tokens, which are enough for nearly every text of AG News.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional
from transformers import DistilBertConfig
from transformers.models.distilbert.modeling_distilbert import DistilBertForSequenceClassification

from ddp_perf.core.subject import TextDataset
from ddp_perf.workloads.corpus import CLASSES
from ddp_perf.workloads.text import PADDING, text_batches
from ddp_perf.workloads.workload import Batch, BuildContext, Workload


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
    """Build it with random initial parameters: the cost of a step does not depend on them."""
    config = DistilBertConfig(
        vocab_size=vocab_size,
        dim=d_model,
        n_heads=n_heads,
        n_layers=num_layers,
        hidden_dim=dim_feedforward,
        dropout=dropout,
        attention_dropout=dropout,
        seq_classif_dropout=dropout,
        num_labels=CLASSES[dataset],
        pad_token_id=PADDING,
    )
    model = DistilBertForSequenceClassification(config).to(context.device)
    return Workload(
        model=model,
        batch=text_batches(context, dataset, vocab_size=vocab_size, max_seq_len=max_seq_len),
        loss=_loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=2e-5),
        blocks=list(model.distilbert.transformer.layer),
    )


def _loss(module: nn.Module, batch: Batch) -> torch.Tensor:
    tokens, classes = batch
    (logits,) = module(tokens, attention_mask=tokens.ne(PADDING).long(), return_dict=False)
    return functional.cross_entropy(logits, classes)
