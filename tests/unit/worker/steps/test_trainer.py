"""A trainer's loss, batches and phases, as injections and the probe change and observe them."""

from __future__ import annotations

import pytest

from ddp_perf.worker.steps.trainer import Trainer
from tests.builders import make_cases
from tests.unit.worker.contexts import make_context

SINGLE_RANK, _ = make_cases()


@pytest.fixture
def trainer():
    return Trainer(SINGLE_RANK, make_context())


def test_observe_reports_the_phases_of_a_step_in_order(trainer):
    phases = []
    with trainer.observe(phases.append):
        trainer.step()

    assert phases == ["optimizer", "data", "forward", "backward", "optimizer"]


def test_observe_ends_with_its_block_even_after_an_error(trainer):
    phases = []

    def fail_while_observed():
        with trainer.observe(phases.append):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_while_observed()
    trainer.step()

    assert phases == []


def test_a_wrapped_loss_is_called_with_the_wrapped_batches(trainer):
    seen = []

    def wrap(plain):
        return lambda module, batch: seen.append(batch) or plain(module, batch)

    def number(batches):
        for number, batch in enumerate(batches):
            yield tuple(tensor * 0 + number for tensor in batch)

    trainer.wrap_loss(wrap)
    trainer.wrap_batches(number)
    for _ in range(2):
        trainer.step()

    assert [{tensor.unique().item() for tensor in batch} for batch in seen] == [{0.0}, {1.0}]
