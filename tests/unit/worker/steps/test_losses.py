"""The losses of some steps are kept as they were, for any number of micro-steps."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from ddp_perf.worker.steps.trainer import Losses, Trainer
from tests.builders import make_cases
from tests.unit.worker.contexts import make_context


def run(each):
    """Return what is kept of one step for each list of micro-steps' losses."""
    losses = Losses()
    for number, micro_steps in enumerate(each, 1):
        losses.begin_step()
        for loss in micro_steps:
            losses.add(torch.tensor(loss, requires_grad=True))
        losses.end_step(number)
    return losses.read()


def test_the_steps_are_powers_of_two():
    kept = run([[float(step)] for step in range(1, 20)])

    assert kept == {"1": 1.0, "2": 2.0, "4": 4.0, "8": 8.0, "16": 16.0}


def test_no_step_after_32_is_kept():
    """Otherwise a longer launch would store steps in which rounding has grown further."""
    assert list(run([[1.0]] * 130)) == ["1", "2", "4", "8", "16", "32"]


def test_the_shares_of_the_micro_steps_are_added():
    assert run([[0.25, 0.5], [1.0, 2.0]]) == {"1": 0.75, "2": 3.0}


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), -float("inf")])
def test_a_loss_that_is_not_finite_is_none(loss):
    assert run([[loss], [1.0]]) == {"1": None, "2": 1.0}


def test_a_kept_loss_is_a_copy():
    """The next replay of a CUDA graph overwrites the loss in place."""
    losses, static = Losses(), torch.tensor(3.0)
    losses.begin_step()
    losses.add(static)
    losses.end_step(1)
    static.fill_(7.0)

    assert losses.read() == {"1": 3.0}


def losses_of(steps=8, *, nudged=False, **suite):
    case, *_ = make_cases(**suite)
    trainer = Trainer(case, make_context(), nudged=nudged)
    for _ in range(steps):
        trainer.step()
    return trainer.losses.read()


def test_training_has_the_same_losses_in_each_launch():
    once = losses_of()

    assert list(once) == ["1", "2", "4", "8"]
    assert losses_of() == once
    assert once["8"] < once["1"]


def test_micro_steps_of_one_batch_have_its_loss():
    assert losses_of(gradient_accumulation=2) == pytest.approx(losses_of(), rel=1e-5)


LLAMA = {"max_seq_len": 8, "vocab_size": 50, "d_model": 16, "n_heads": 4, "n_kv_heads": 2}


@pytest.mark.parametrize(
    "suite",
    [{}, {"workload": "llama", "model": {**LLAMA, "num_layers": 1, "dim_feedforward": 24}}],
    ids=["on the device", "on the meta device"],
)
def test_a_nudged_launch_differs_by_rounding_alone(suite):
    plain, nudged = losses_of(**suite), losses_of(nudged=True, **suite)

    assert plain != nudged
    assert nudged == pytest.approx(plain, rel=1e-5)


WORKLOAD = """
import random
import numpy as np
import torch
from ddp_perf.workloads.workload import Workload


def build(context, *, kind):
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))
    dtype = torch.bfloat16 if kind == "bfloat16" else torch.float32
    model.to(dtype)
    if kind == "float8":
        model.scale = torch.nn.Parameter(torch.ones(4).to(torch.float8_e4m3fn), False)
    if kind == "expanded":
        model.scale = torch.nn.Parameter(torch.ones(1).expand(64), False)
    if kind == "meta":
        model.scale = torch.nn.Parameter(torch.ones(4, dtype=torch.int8), False)
        model.to("meta")
    if kind == "iterator":
        batches = ((torch.randn(size, 16),) for size in range(1, 99))
    if kind == "random":
        batch = torch.full((4, 16), np.random.rand() + random.random())
    else:
        batch = torch.randn(4, 16)
    return Workload(
        model=model,
        batch=batches if kind == "iterator" else (batch.to(dtype),),
        loss=lambda module, batch: module(batch[0]).square().mean(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05),
        fill=(lambda name, parameter: parameter.fill_(1)) if kind == "meta" else None,
    )
"""


@pytest.fixture
def trainer_of(tmp_path, monkeypatch):
    """``trainer_of(kind)`` builds and trains a user's own workload for eight steps."""
    (tmp_path / "a_users_own.py").write_text(WORKLOAD)
    monkeypatch.syspath_prepend(tmp_path)

    def train(kind, *, nudged=False):
        case, *_ = make_cases(workload="a_users_own:build", model={"kind": kind})
        trainer = Trainer(case, make_context(), nudged=nudged)
        for _ in range(8):
            trainer.step()
        return trainer

    return train


def test_what_is_frozen_of_a_model_on_the_meta_device_is_filled_and_not_nudged(trainer_of):
    assert trainer_of("meta", nudged=True).module.scale.tolist() == [1, 1, 1, 1]


def test_another_session_draws_the_same_numbers_whatever_library_draws_them(trainer_of):
    """Ranks inherit the state of their server, and each session has another server."""
    once = trainer_of("random").losses.read()
    random.seed(7)
    np.random.seed(7)

    assert trainer_of("random").losses.read() == once


def test_a_nudge_of_half_precision_is_a_unit_and_reported_with_its_size(trainer_of):
    plain, nudged = trainer_of("bfloat16"), trainer_of("bfloat16", nudged=True)

    assert nudged.loss_unit == 2**-7
    assert trainer_of("float8").loss_unit == 2**-23  # what is frozen does not round
    assert plain.losses.read() != nudged.losses.read()
    assert nudged.losses.read() == pytest.approx(plain.losses.read(), rel=2**-6)


@pytest.mark.parametrize("kind", ["float8", "expanded"])
def test_a_frozen_parameter_is_not_nudged(trainer_of, kind):
    """Nothing changes a float8 in place on a CPU, nor a view with overlapping elements."""
    assert trainer_of(kind, nudged=True).losses.read() == pytest.approx(
        trainer_of(kind).losses.read(), rel=1e-5
    )


def test_a_trainer_states_whether_each_step_has_the_same_batch(trainer_of):
    assert trainer_of("float32").one_batch
    assert not trainer_of("iterator").one_batch
