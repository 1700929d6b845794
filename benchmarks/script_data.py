"""The data of the real scripts: random, tiny, and made in the folder where they look for it."""

from __future__ import annotations

import json
import pickle
import random
from pathlib import Path

import numpy as np

_WORDS = [f"w{number}" for number in range(200)]


def tokens(folder: Path) -> None:
    """Write the tokens that nanoGPT's ``data/*/prepare.py`` would write."""
    place = folder / "data" / "tiny"
    place.mkdir(parents=True)
    draw = np.random.default_rng(1)
    for split in ("train", "val"):
        draw.integers(65, size=20_000).astype(np.uint16).tofile(place / f"{split}.bin")
    (place / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 65}))


def wikitext(folder: Path) -> None:
    """Write the text that Lightning's ``WikiText2`` would download."""
    place = folder / "data"
    place.mkdir()
    draw = random.Random(1)
    lines = (" ".join(draw.choices(_WORDS, k=35)) for _ in range(8000))
    (place / "wikitext-2.txt").write_text("\n".join(lines), encoding="utf-8")


# Stanford Alpaca's ``utils.py`` names this type of an old version, and training never uses it.
_OPENAI = """class openai_object:
    OpenAIObject = object
"""


def instructions(folder: Path) -> None:
    """Write instructions and their answers, and a GPT-2 with random weights."""
    from transformers import GPT2Config, GPT2LMHeadModel

    draw = random.Random(1)

    def text() -> str:
        return " ".join(draw.choices(_WORDS, k=6))

    listed = [{"instruction": text(), "input": "", "output": text()} for _ in range(256)]
    (folder / "instructions.json").write_text(json.dumps(listed), encoding="utf-8")
    (folder / "openai.py").write_text(_OPENAI, encoding="utf-8")
    letters = [chr(code) for code in (*range(33, 127), *range(161, 173), *range(174, 512))]
    vocabulary = {letter: number for number, letter in enumerate([*letters, "<|endoftext|>"])}
    end = len(vocabulary) - 1
    config = GPT2Config(
        vocab_size=len(vocabulary),
        n_positions=128,
        n_embd=128,
        n_layer=2,
        n_head=4,
        bos_token_id=end,
        eos_token_id=end,
    )
    GPT2LMHeadModel(config).save_pretrained(folder / "tiny")
    (folder / "tiny" / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    (folder / "tiny" / "merges.txt").write_text("#version: 0.2\n", encoding="utf-8")
    settings = {"tokenizer_class": "GPT2Tokenizer"}
    (folder / "tiny" / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


_GLUE = """---
configs:
- config_name: mrpc
  data_files:
  - {split: train, path: train.jsonl}
  - {split: validation, path: validation.jsonl}
---
"""
_METRIC = """import datasets
import evaluate

class Glue(evaluate.Metric):
    def _info(self):
        features = {name: datasets.Value("int64") for name in ("predictions", "references")}
        return evaluate.MetricInfo(
            description="", citation="", features=datasets.Features(features)
        )

    def _compute(self, predictions, references):
        return {}
"""


def sentence_pairs(folder: Path) -> None:
    """Write pairs of sentences, their metric, and a BERT with random weights.

    They are folders of the names that Accelerate's example asks the hub for. A folder comes first.
    """
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

    glue, bert, metric = folder / "nyu-mll" / "glue", folder / "bert-base-cased", folder / "glue"
    for place in (glue, bert, metric):
        place.mkdir(parents=True)
    (glue / "README.md").write_text(_GLUE, encoding="utf-8")
    (metric / "glue.py").write_text(_METRIC, encoding="utf-8")
    draw = random.Random(1)
    for split, rows in (("train", 3200), ("validation", 64)):
        lines = (
            {
                "sentence1": " ".join(draw.choices(_WORDS, k=12)),
                "sentence2": " ".join(draw.choices(_WORDS, k=12)),
                "label": draw.randrange(2),
                "idx": row,
            }
            for row in range(rows)
        )
        text = "\n".join(map(json.dumps, lines))
        (glue / f"{split}.jsonl").write_text(text, encoding="utf-8")
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *_WORDS]
    (bert / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    BertTokenizer(str(bert / "vocab.txt")).save_pretrained(bert)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=256,
    )
    BertForSequenceClassification(config).save_pretrained(bert)
