"""The guard of what a rank examines after its timed steps."""

from __future__ import annotations

import pytest
import torch.distributed as dist

from ddp_perf.core.launch import PEER_LEFT
from ddp_perf.errors import CollectiveError
from ddp_perf.worker.rank_context import Examination
from ddp_perf.worker.steps.protocol import follow_plan
from tests.builders import make_rank_result


def failing(error):
    yield
    raise error


def guarded(examination, fact, plan, step=lambda: None):
    return follow_plan(examination.together(fact, plan), step)


def test_what_one_rank_reads_alone_may_fail_without_any_other_fact():
    examination = Examination()

    assert examination.alone("ddp_logging", lambda: {}["no such key"]) is None
    assert examination.alone("losses", lambda: {"1": 2.0}) == {"1": 2.0}

    assert examination.missing == {"ddp_logging": "KeyError: 'no such key'"}
    assert not examination.left


@pytest.mark.parametrize("where", ["in the plan", "in a step", "exit in a step"])
def test_after_what_all_ranks_do_together_has_failed_nothing_of_it_is_begun(where):
    """The others may be in a collective, and would take another one of this rank for it."""
    examination, begun = Examination(), []

    def step():
        if where == "in a step":
            raise RuntimeError("no\nand more lines")
        if where == "exit in a step":
            raise SystemExit(3)

    def later():
        begun.append(True)
        yield

    assert guarded(examination, "structure", failing(RuntimeError("no")), step) is None
    assert guarded(examination, "probe", later()) is None

    why = "SystemExit: 3" if where == "exit in a step" else "RuntimeError: no"
    assert examination.missing == {"structure": why, "probe": why}
    assert examination.left
    assert not begun
    assert (
        examination.meet(make_rank_result()) is False
    )  # no barrier: there is no group in this process either


def test_a_whole_result_is_delivered_before_the_others_are_met(monkeypatch):
    """Over NCCL the wait for a rank that has ended lasts until this one is killed."""
    noted = []
    monkeypatch.setattr(dist, "barrier", lambda: noted.append("meet"))
    examination = Examination(lambda result, *, whole=False: noted.append((result, whole)))

    assert examination.meet(make_rank_result())

    assert noted == [(make_rank_result(), True), "meet"]


def test_a_rank_that_lost_the_others_is_not_the_cause():
    examination = Examination()
    lost = RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer")

    guarded(examination, "probe", failing(lost))

    assert examination.missing == {"probe": PEER_LEFT}


def test_a_mistake_of_the_user_is_no_missing_fact():
    examination = Examination()

    with pytest.raises(CollectiveError):
        guarded(examination, "structure", failing(CollectiveError("a wrong sum")))
    with pytest.raises(CollectiveError):
        examination.alone("losses", lambda: follow_plan(failing(CollectiveError("")), lambda: None))
