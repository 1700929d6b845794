"""One side of a comparison: sessions of the same cases, merged for the tables and the causes."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.case import with_training
from ddp_perf.errors import ResultsError
from ddp_perf.session.compare_sessions import ComparedSession, one_side
from tests.builders import make_cases, make_environment, make_failure, make_measurement, make_result

ONE, TWO = make_cases()


def session(name, *levels, day=1, failed=False, **changes):
    """Return a session of two cases with a launch at each of these levels."""
    measurements = [make_measurement(case, levels) for case in (ONE, TWO)]
    if failed:
        measurements[1] = msgspec.structs.replace(measurements[1], failures=(make_failure(TWO),))
    suite = make_result(measurements, date=f"2026-01-{day:02}T03:04:05+00:00", **changes)
    return ComparedSession(name=name, complete=True, suites=(suite,))


def test_the_launches_of_all_sessions_are_merged_with_a_round_of_their_own():
    """A round pairs the launches of a case with those of its one-rank case."""
    side = one_side([session("b", 0.03, 0.04, day=2), session("a", 0.01, 0.02, 0.015)])

    (merged,) = side.merged()

    assert side.name == "a, b"
    assert merged.date.startswith("2026-01-02")
    for case in (ONE, TWO):
        launches = merged.measurements[case.id].launches
        assert [launch.round for launch in launches] == [0, 1, 2, 3, 4]
        assert [launch.step_s[0] for launch in launches] == [0.01, 0.02, 0.015, 0.03, 0.04]
        rows = merged.summaries[case.id]
        assert [row.round for row in rows] == [0, 1, 2, 3, 4]
        assert [row.values["step_time"] for row in rows] == [0.01, 0.02, 0.015, 0.03, 0.04]


def test_one_session_is_not_changed():
    alone = session("a", 0.01)

    assert one_side([alone]).merged() == alone.suites


def test_a_failure_of_any_session_is_one_of_the_side():
    side = one_side([session("a", 0.01, failed=True), session("b", 0.01, day=2)])

    (merged,) = side.merged()

    assert [failure.case_id for failure in merged.measurements[TWO.id].failures] == [TWO.id]


def other_work():
    wider = [
        with_training(case, model={**case.training.model, "hidden_dim": 48}) for case in (ONE, TWO)
    ]
    suite = make_result(
        [make_measurement(case, [0.01]) for case in wider], date="2026-01-02T03:04:05+00:00"
    )
    return ComparedSession(name="b", complete=True, suites=(suite,))


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (session("a", 0.01, day=2), "a and a are the same session"),
        (session("b", 0.01), "a and b are the same session"),
        (other_work(), f"{ONE.id} is other work in each"),
        (
            session("b", 0.01, day=2, environment=make_environment(accelerator_key="other")),
            "measured on cpu-some-2c-host and other",
        ),
        (
            ComparedSession(name="b", complete=True, suites=()),
            "measured on nothing and cpu-some-2c-host",
        ),
    ],
    ids=["a file twice", "a copy", "other work", "another machine", "an empty file"],
)
def test_sessions_that_do_not_belong_together_are_refused(second, why):
    with pytest.raises(ResultsError, match=why):
        one_side([session("a", 0.01), second])


def test_hosts_of_a_pool_are_not_one_side():
    def on(host):
        return make_environment(host=host, pool="ci")

    first, second = (
        session(host, 0.01, day=day, environment=on(host)) for day, host in ((1, "x"), (2, "y"))
    )

    with pytest.raises(ResultsError, match="hosts x and y"):
        one_side([first, second])
