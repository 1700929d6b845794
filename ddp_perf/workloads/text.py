"""Tokens for the text classifiers: of the published texts, or random ones of their shape."""

from __future__ import annotations

import itertools
import re
import zlib
from collections.abc import Iterator, Sequence

import torch
from torch.utils.data import Dataset

from ddp_perf.core import subject
from ddp_perf.workloads.corpus import CLASSES, SAMPLES, Text, read_texts
from ddp_perf.workloads.workload import Batch, BuildContext, Synthetic, batches

PADDING = 0  # after the last token of a text
_START = 1  # before its first token; a classifier reads the vector of this one
_FIRST_WORD = 2
_WORD = re.compile(r"\w+|[^\w\s]")


def text_batches(
    context: BuildContext, dataset: subject.TextDataset, *, vocab_size: int, max_seq_len: int
) -> Batch | Iterator[Batch]:
    """Return batches of tokens (batch, max_seq_len) and classes (batch,), both int64."""
    if context.data.source == "files":
        texts = read_texts(dataset)
        if context.data.num_workers is None:  # one batch is enough
            texts = itertools.islice(texts, context.world_size * context.batch_size)
        return batches(_Tokenized(list(texts), vocab_size, max_seq_len), context)
    classes = CLASSES[dataset]

    def sample(generator: torch.Generator) -> Batch:
        words = torch.randint(_FIRST_WORD, vocab_size, (max_seq_len - 1,), generator=generator)
        tokens = torch.cat([torch.tensor([_START]), words])
        return tokens, torch.randint(classes, (), generator=generator)

    return batches(Synthetic(SAMPLES[dataset], sample), context)


class _Tokenized(Dataset[Batch]):
    """A dataset of texts that are tokenized on access, in the workers of a data loader."""

    def __init__(self, texts: Sequence[Text], vocab_size: int, max_seq_len: int) -> None:
        self._texts = texts
        self._vocab_size = vocab_size
        self._max_seq_len = max_seq_len

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, index: int) -> Batch:
        label, text = self._texts[index]
        tokens = tokenize(text, vocab_size=self._vocab_size, max_seq_len=self._max_seq_len)
        return torch.tensor(tokens), torch.tensor(label)


def tokenize(text: str, *, vocab_size: int, max_seq_len: int) -> list[int]:
    """Return a start token, a token for each word or sign, and padding, ``max_seq_len`` in all.

    Longer texts are cut. A token is the CRC-32 of the lower-cased word modulo the vocabulary. So
    no table of words is needed, but a few words share a token. (The published experiments use
    learnt tables, which are not part of their data.)
    """
    words = _WORD.findall(text.lower())[: max_seq_len - 1]
    hashed = [
        _FIRST_WORD + zlib.crc32(word.encode()) % (vocab_size - _FIRST_WORD) for word in words
    ]
    return [_START, *hashed] + [PADDING] * (max_seq_len - 1 - len(words))
