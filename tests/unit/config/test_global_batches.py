"""A global batch is shared by all ranks: strong scaling."""

from __future__ import annotations

import pytest

from ddp_perf.config.loading import Overrides, load_cases
from tests.builders import make_cases
from tests.unit.config.refusals import refusal

STRONG = {"world_sizes": [1, 2, 4], "batch_sizes": {"global": [32]}}


def test_the_ranks_share_a_global_batch():
    cases = make_cases(**STRONG)

    assert [case.id for case in cases] == [
        "mlp-none-fp32-ws1-g32",
        "mlp-ddp-fp32-ws2-g32",
        "mlp-ddp-fp32-ws4-g32",
    ]
    assert [case.batch_size for case in cases] == [32, 16, 8]
    assert {case.samples_per_step for case in cases} == {32}
    assert {case.global_batch for case in cases} == {32}
    assert [case.single for case in cases] == [None, cases[0].id, cases[0].id]


def test_the_micro_steps_share_a_global_batch_too():
    cases = make_cases(**STRONG, gradient_accumulation=4)

    assert [case.batch_size for case in cases] == [8, 4, 2]
    assert {case.samples_per_step for case in cases} == {32}


def test_the_fingerprint_has_a_global_batch_only_if_one_is_shared():
    (weak,) = make_cases(world_sizes=[1], batch_sizes=[32])
    (strong,) = make_cases(world_sizes=[1], batch_sizes={"global": [32]})

    assert "global_batch" not in weak.work()
    assert strong.work() == {**weak.work(), "global_batch": 32}
    assert strong.id != weak.id


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param(
            {"world_sizes": [1, 3]},
            "batch_sizes.global: 3 ranks cannot share 32 samples evenly; take 30 or 33, or leave"
            " that world size out",
            id="ranks",
        ),
        pytest.param(
            {"gradient_accumulation": 12},
            "batch_sizes.global: 1 rank with 12 micro-steps cannot share 32 samples evenly; take 24"
            " or 36, or leave that world size out",
            id="micro-steps",
        ),
        pytest.param(
            {"world_sizes": [64]},
            "batch_sizes.global: 64 ranks cannot share 32 samples evenly; take 64, or leave that"
            " world size out",
            id="more ranks than samples",
        ),
        pytest.param(
            {"batch_sizes": {"global": [32, 32]}},
            "batch_sizes.global: 32 is listed twice, so two cases have one id; remove one",
            id="twice",
        ),
        pytest.param(
            {"batch_sizes": {"globl": [32]}},
            "batch_sizes.globl: unknown field; did you mean 'global'?",
            id="misspelt",
        ),
        pytest.param(
            {"batch_sizes": {"global": []}},
            "batch_sizes.global: expected a list of length >= 1",
            id="empty",
        ),
        pytest.param(
            {"batch_sizes": 32}, "batch_sizes: expected a table of fields or a list, got", id="bare"
        ),
    ],
)
def test_a_batch_that_cannot_be_shared_is_refused_with_the_remedy(suite_file, changes, message):
    assert refusal(suite_file(**{**STRONG, **changes})).startswith(message)


def test_a_batch_of_the_command_line_is_of_the_kind_of_the_suite(suite_file):
    overrides = Overrides(batch_sizes=(64,), world_sizes=(1, 2))

    strong = load_cases([suite_file(**STRONG)], overrides)
    weak = load_cases([suite_file()], overrides)

    assert [(case.batch_size, case.global_batch) for case in strong] == [(64, 64), (32, 64)]
    assert [(case.batch_size, case.global_batch) for case in weak] == [(64, None), (64, None)]


def test_world_sizes_of_the_command_line_that_do_not_divide_it_are_refused(suite_file):
    message = refusal(suite_file(**STRONG), world_sizes=(1, 3))

    assert message.startswith(", changed by the command line: batch_sizes.global: 3 ranks")
