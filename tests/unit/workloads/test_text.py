"""Texts as tokens: equal words have equal tokens in every process, and the length is fixed."""

from __future__ import annotations

import zlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.core.subject import DataOptions
from ddp_perf.workloads.text import PADDING, text_batches, tokenize
from ddp_perf.workloads.workload import BuildContext


@given(st.text(max_size=60), st.integers(min_value=3, max_value=100), st.integers(2, 40))
def test_tokenize_fills_the_length_with_tokens_of_the_vocabulary(text, vocab_size, max_seq_len):
    tokens = tokenize(text, vocab_size=vocab_size, max_seq_len=max_seq_len)

    assert len(tokens) == max_seq_len
    assert all(0 <= token < vocab_size for token in tokens)
    words = tokens.index(PADDING) if PADDING in tokens else max_seq_len
    assert words >= 1  # the start token, so no text is padding only
    assert tokens[words:] == [PADDING] * (max_seq_len - words)


def test_tokenize_hashes_lower_case_words_and_signs_by_crc32():
    tokens = tokenize("Oil, oil!", vocab_size=1000, max_seq_len=6)

    oil, comma, bang = (2 + zlib.crc32(word) % 998 for word in (b"oil", b",", b"!"))
    assert tokens == [1, oil, comma, oil, bang, PADDING]


def context_of(rank, data=None):
    return BuildContext(
        device=torch.device("cpu"),
        batch_size=3,
        rank=rank,
        world_size=2,
        data=data or DataOptions(),
    )


@pytest.mark.parametrize(("dataset", "classes"), [("ag_news", 4), ("imdb", 2)])
def test_synthetic_texts_have_the_shape_of_real_ones(dataset, classes):
    tokens, labels = text_batches(context_of(0), dataset, vocab_size=50, max_seq_len=7)

    assert (tokens.shape, tokens.dtype) == ((3, 7), torch.int64)
    assert (labels.shape, labels.dtype) == ((3,), torch.int64)
    assert tokens.ne(PADDING).all()  # texts of the full length are the most work
    assert labels.max() < classes


def test_each_rank_has_its_own_samples_equal_in_every_launch():
    first, again, other = (
        text_batches(context_of(rank), "imdb", vocab_size=50, max_seq_len=7) for rank in (0, 0, 1)
    )

    assert torch.equal(first[0], again[0])
    assert not torch.equal(first[0], other[0])


@pytest.mark.parametrize("num_workers", [None, 0])
def test_files_are_tokenized_equally_with_and_without_a_loader(tmp_path, monkeypatch, num_workers):
    monkeypatch.setenv("DDP_PERF_DATA", str(tmp_path))
    path = tmp_path / "ag_news_csv" / "train.csv"
    path.parent.mkdir()
    path.write_text("".join(f'"{1 + i % 4}","word{i}","end"\n' for i in range(6)))
    data = DataOptions(source="files", num_workers=num_workers)

    seen = set()
    for rank in (0, 1):
        batch = text_batches(context_of(rank, data), "ag_news", vocab_size=999, max_seq_len=4)
        tokens, labels = batch if isinstance(batch, tuple) else next(batch)
        seen |= {(*row.tolist(), int(label)) for row, label in zip(tokens, labels, strict=True)}

    assert seen == {
        (*tokenize(f"word{i} end", vocab_size=999, max_seq_len=4), i % 4) for i in range(6)
    }
