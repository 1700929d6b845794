"""The examination of a trainer: what it leaves out on all ranks alike."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
from torch import nn

from ddp_perf.worker import measure
from ddp_perf.worker.rank_context import Examination
from ddp_perf.worker.steps.protocol import follow_plan
from tests.builders import make_case
from tests.unit.worker.contexts import make_context


class Trainer:
    """A trainer whose steps do nothing."""

    module = nn.Linear(4, 2)
    losses = SimpleNamespace(read=dict)
    loss_unit, one_batch = None, False

    def release(self):
        pass

    def settle(self, steps):
        yield

    def synchronise(self):
        yield


@pytest.mark.parametrize("mine", [True, False])
def test_no_rank_is_probed_if_one_has_no_structure(monkeypatch, mine):
    """The ranks with one would wait in the collectives of the probe for the one without."""
    asked = []

    def agree(yes, device):
        asked.append(yes)
        return False

    def count(module, examination):
        yield
        counts = SimpleNamespace(structure=None, flops=1, flops_by_format={})
        return counts if mine else examination.alone("structure", lambda: {}["no such key"])

    monkeypatch.setattr(measure, "all_agree", agree)
    monkeypatch.setattr(measure, "count_structure", count)
    monkeypatch.setattr(measure, "probe", lambda *arguments: pytest.fail("a rank is probed"))
    examination = Examination()
    context = msgspec.structs.replace(make_context(), examination=examination)

    plan = measure.examine_training(make_case(), Trainer(), context, probe_steps=2)
    facts = follow_plan(plan, lambda: None)

    assert asked == [mine]
    assert facts.probe is None
    assert examination.missing["probe"] == "a rank has no structure"
    assert ("structure" in examination.missing) is not mine
    assert not examination.left
