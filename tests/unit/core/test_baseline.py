"""A session counts as one with the stored session that it is beside."""

from __future__ import annotations

import datetime

import msgspec
import pytest

from tests.builders import make_case, make_case_baseline, make_environment, make_session

START = datetime.datetime(2026, 1, 1, 3, tzinfo=datetime.timezone.utc)


def at(hours):
    return (START + datetime.timedelta(hours=hours)).isoformat()


def session(hours):
    return msgspec.structs.replace(make_session([0.01, 0.03]), date=at(hours))


@pytest.mark.parametrize(
    ("stored", "hours", "beside"),
    [((0,), 11, 0), ((0,), 12, None), ((0, 8), 13, None), ((0, 8, 13), 20, 13)],
)
def test_a_session_within_half_a_day_of_a_stored_one_is_beside_it(stored, hours, beside):
    case = make_case_baseline(make_case(), *map(session, stored))

    found = case.session_beside(at(hours), make_environment())

    assert found == (None if beside is None else at(beside))


def test_a_session_on_another_host_of_a_pool_is_beside_no_session_of_the_first():
    one, other = (make_environment(host=name, pool="ci") for name in ("one", "other"))
    case = make_case_baseline(make_case(), msgspec.structs.replace(session(0), environment=one))

    assert case.session_beside(at(1), one) == at(0)
    assert case.session_beside(at(1), other) is None
