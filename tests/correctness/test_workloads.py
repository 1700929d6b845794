"""Each of the suite's own workloads has its documented size, and trains on one and two ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch

from ddp_perf.core.subject import MODELS, DataOptions
from ddp_perf.workloads import llama
from ddp_perf.workloads.workload import BuildContext, find_builder
from tests.correctness.one_process import allocated
from tests.correctness.workloads import own

pytestmark = pytest.mark.slow

LLAMA_3_8B = {
    "vocab_size": 128_256,
    "d_model": 4096,
    "n_kv_heads": 8,
    "num_layers": 32,
    "dim_feedforward": 14_336,
}
STEPS = 2  # batch norm over a tiny batch magnifies rounding a thousand times a step
TRANSFORMER = {"max_seq_len": 8, "vocab_size": 50, "d_model": 16, "n_heads": 2, "num_layers": 2}
CLASSIFIER = {**TRANSFORMER, "dim_feedforward": 24, "dropout": 0.0, "dataset": "ag_news"}
TINY: dict[str, dict[str, Any]] = {
    "mlp": {"input_dim": 12, "hidden_dim": 16, "output_dim": 3, "num_layers": 3},
    "distilbert": CLASSIFIER,
    "text_transformer": CLASSIFIER,
    "resnet50": {"image_size": 64, "num_classes": 10, "width": 2, "channels_last": True},
    "gpt": TRANSFORMER,
    "llama": {**TRANSFORMER, "n_heads": 4, "n_kv_heads": 2, "dim_feedforward": 24},
}


def test_every_own_workload_is_tested_here():
    assert TINY.keys() == MODELS.keys()


@pytest.mark.parametrize(
    ("workload", "strategy"),
    [*((name, "ddp") for name in TINY), ("gpt", "fsdp"), ("llama", "fsdp")],
)
def test_two_ranks_train_as_one_process_does_on_the_samples_of_both(
    launch, tmp_path, workload, strategy
):
    """In float64, a gradient of half or twice the size would change parameters by over 1e-4.

    FSDP allocates a model on the meta device after it sharded it.
    """
    path = tmp_path / "parameters"
    probe = {"workload": workload, "path": str(path), "after_steps": STEPS}
    model = {**probe, **TINY[workload]}
    result = launch("own:build", 2, model=model, steps=STEPS + 2, strategy=strategy)

    for expected, actual in zip(_train_in_one_process(workload), torch.load(path), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-8)
    assert result.ranks[0].structure.parameters == parameters_of(workload, TINY[workload])


def _train_in_one_process(workload):
    """Return the parameters after STEPS plain steps on the mean of both ranks' losses.

    The model computes each rank's samples separately, since batch norm is over one rank's samples.
    """
    torch.manual_seed(0)  # as the harness does
    ranks = [
        allocated(own.build(context_of(rank), workload=workload, **TINY[workload]))
        for rank in (0, 1)
    ]
    model, loss = ranks[0].model, ranks[0].loss
    optimizer = ranks[0].optimizer(model.parameters())
    for _ in range(STEPS):
        optimizer.zero_grad()
        torch.stack([loss(model, rank.batch) for rank in ranks]).mean().backward()
        optimizer.step()
    return list(model.parameters())


@pytest.mark.parametrize("workload", TINY)
def test_the_loss_falls_with_the_workloads_own_optimizer(workload):
    torch.manual_seed(0)
    built = allocated(find_builder(workload)(context_of(0), **TINY[workload]))
    optimizer = built.optimizer(built.model.parameters())
    losses = []
    for _ in range(6):
        loss = built.loss(built.model, built.batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("workload", "arguments", "published"),
    [
        ("mlp", {"num_layers": 3}, 41_953_280),  # mlp_scaling's, inferred: docs/published.md
        ("distilbert", {}, 66_955_010 + 2 * 769),  # published with 2 classes; AG News has 4
        ("resnet50", {}, 25_557_032),
        ("gpt", {}, 124_439_808),
        ("llama", {}, 1_100_048_384),  # TinyLlama 1.1B
        ("llama", LLAMA_3_8B, 8_030_261_248),
        ("text_transformer", {}, None),
        (
            "text_transformer",
            {"d_model": 256, "num_layers": 4, "dim_feedforward": 1024, "dataset": "imdb"},
            None,
        ),
    ],
)
def test_the_full_size_has_the_published_number_of_parameters(workload, arguments, published):
    arguments = msgspec.structs.asdict(msgspec.convert(arguments, MODELS[workload]))
    with torch.device(
        "meta"
    ):  # uses no memory and no time; a loader makes no batch before the first step
        context = context_of(0, device="meta", num_workers=0)
        model = find_builder(workload)(context, **arguments).model

    count = sum(parameter.numel() for parameter in model.parameters())
    assert count == parameters_of(workload, arguments)
    assert published in (None, count)


@pytest.mark.parametrize("workload", [name for name in TINY if name != "mlp"])
def test_blocks_are_the_repeated_layers_of_the_model(workload):
    built = find_builder(workload)(context_of(0), **TINY[workload])

    inside = set(built.model.modules())
    assert len(built.blocks) == TINY[workload].get("num_layers", 3 + 4 + 6 + 3)
    assert len({type(block) for block in built.blocks}) == 1
    assert all(block in inside for block in built.blocks)


@pytest.mark.parametrize("workload", ["gpt", "llama"])
def test_a_decoder_predicts_from_earlier_tokens_only(workload):
    model = allocated(find_builder(workload)(context_of(0), **TINY[workload])).model
    tokens = torch.arange(8).unsqueeze(0)
    later = tokens.clone()
    later[0, 5:] = 49

    torch.testing.assert_close(model(tokens)[0, :5], model(later)[0, :5])
    assert not torch.allclose(model(tokens)[0, 5:], model(later)[0, 5:])


def test_rotary_embedding_turns_by_the_distance_of_two_tokens():
    """The score of a query and a key is the same wherever the two are, at the same distance."""
    query, key = torch.randn(2, 1, 1, 1, 8, generator=torch.Generator().manual_seed(0))
    turns = llama._turns(12, 8, torch.zeros((), dtype=torch.float64))
    queries, keys = (
        llama._turned(each.double().expand(1, 1, 12, 8), turns) for each in (query, key)
    )
    scores = (queries @ keys.transpose(-1, -2))[0, 0]

    for distance in range(12):
        diagonal = scores.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=1e-5, atol=1e-5)
    assert len({round(scores[0, place].item(), 3) for place in range(12)}) > 6


def test_grouped_queries_are_those_of_repeated_keys_and_values():
    """Llama with fewer heads of keys is the one with all heads whose keys and values are copies."""
    sizes = TINY["llama"]
    torch.manual_seed(0)
    grouped = allocated(find_builder("llama")(context_of(0), **sizes)).model
    whole = allocated(find_builder("llama")(context_of(0), **{**sizes, "n_kv_heads": 4})).model
    state = {
        name: each.unflatten(0, (2, -1)).repeat_interleave(2, 0).flatten(0, 1)
        if name.endswith(("key.weight", "value.weight"))
        else each
        for name, each in grouped.state_dict().items()
    }
    whole.load_state_dict(state)
    tokens = torch.arange(8).unsqueeze(0)

    torch.testing.assert_close(grouped(tokens), whole(tokens))


@pytest.mark.parametrize("workload", ["distilbert", "text_transformer"])
def test_padding_does_not_change_the_loss_of_a_classifier(workload):
    built = find_builder(workload)(context_of(0), **TINY[workload])
    long = torch.tensor([[1, 7, 8, 9, 0, 0, 0, 0]])
    label = torch.tensor([2])

    assert torch.allclose(
        built.loss(built.model, (long, label)), built.loss(built.model, (long[:, :4], label))
    )


def context_of(rank, *, device="cpu", **data):
    """Return the context of one of two ranks with a batch of 4 each."""
    return BuildContext(
        device=torch.device(device),
        batch_size=4,
        rank=rank,
        world_size=2,
        data=DataOptions(**data),
    )


def parameters_of(workload, sizes):
    """Return the number of parameters by the arithmetic of the model's definition."""
    return _COUNTS[workload](**sizes)


def _linear(wide, narrow):
    return wide * narrow + narrow


def _mlp(*, input_dim, hidden_dim, output_dim, num_layers):
    hidden = (num_layers - 2) * _linear(hidden_dim, hidden_dim)
    return _linear(input_dim, hidden_dim) + hidden + _linear(hidden_dim, output_dim)


def _layer(d_model, dim_feedforward):
    """Count query, key, value and projection, two layer norms, and the feed-forward part."""
    feed_forward = _linear(d_model, dim_feedforward) + _linear(dim_feedforward, d_model)
    return 4 * _linear(d_model, d_model) + 2 * 2 * d_model + feed_forward


def _distilbert(*, dataset, vocab_size, d_model, num_layers, dim_feedforward, **_):
    embeddings = (vocab_size + 512) * d_model + 2 * d_model
    head = _linear(d_model, d_model) + _linear(d_model, {"ag_news": 4, "imdb": 2}[dataset])
    return embeddings + num_layers * _layer(d_model, dim_feedforward) + head


def _text_transformer(
    *, dataset, vocab_size, max_seq_len, d_model, num_layers, dim_feedforward, **_
):
    embeddings = (vocab_size + max_seq_len) * d_model
    head = _linear(d_model, {"ag_news": 4, "imdb": 2}[dataset])
    return embeddings + num_layers * _layer(d_model, dim_feedforward) + head


def _gpt(*, vocab_size, max_seq_len, d_model, num_layers, **_):
    embeddings = (vocab_size + max_seq_len) * d_model
    return embeddings + num_layers * _layer(d_model, 4 * d_model) + 2 * d_model


def _llama(*, vocab_size, d_model, n_heads, n_kv_heads, num_layers, dim_feedforward, **_):
    attention = 2 * d_model * (d_model + d_model // n_heads * n_kv_heads)
    layer = attention + 3 * d_model * dim_feedforward + 2 * d_model
    return 2 * vocab_size * d_model + num_layers * layer + d_model


def _resnet50(*, num_classes, width, **_):
    """Count convolutions without bias, each with a norm of two parameters a channel."""
    count = 3 * 7 * 7 * width + 2 * width
    wide = width
    for depth, narrow in zip((3, 4, 6, 3), (width, 2 * width, 4 * width, 8 * width), strict=True):
        out = 4 * narrow
        for layer in range(depth):
            count += wide * narrow + 9 * narrow * narrow + narrow * out + 2 * (2 * narrow + out)
            count += wide * out + 2 * out if layer == 0 else 0  # the shortcut
            wide = out
    return count + _linear(wide, num_classes)


_COUNTS: dict[str, Callable[..., int]] = {
    "mlp": _mlp,
    "distilbert": _distilbert,
    "text_transformer": _text_transformer,
    "gpt": _gpt,
    "llama": _llama,
    "resnet50": _resnet50,
}
