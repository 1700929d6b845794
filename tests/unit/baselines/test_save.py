"""Each save mode stores or refuses sessions by its rules, and reports what it replaces."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.baselines.save import (
    NewSession,
    acknowledge,
    is_comparable,
    merge,
    too_noisy,
    unacknowledged,
    without_saving,
    work_differences,
)
from ddp_perf.core.case import Tolerances
from ddp_perf.core.verdict import Outcome
from ddp_perf.errors import BaselineError
from tests.builders import (
    make_acknowledgement,
    make_baseline,
    make_case,
    make_case_baseline,
    make_environment,
    make_session,
    make_structure,
)

MODES = ["missing", "append", "accept"]


def new_session(step_s, case=None, *, day=9, structure=None):
    return NewSession(
        case=case or make_case(),
        session=make_session(step_s, day=day),
        structure=structure or make_structure(),
    )


@pytest.fixture
def baseline():
    """A baseline of one case with two sessions."""
    case = make_case()
    sessions = (make_session([0.010, 0.010]), make_session([0.011, 0.011], day=2))
    return make_baseline({case.id: make_case_baseline(case, *sessions)})


@pytest.mark.parametrize("mode", MODES)
def test_a_case_without_baseline_is_recorded_in_every_mode(mode):
    new = new_session([0.010, 0.012, 0.011])

    merged = merge(make_baseline(), [new], mode=mode, reason="new" if mode == "accept" else None)

    stored = merged.cases[new.case.id]
    assert stored.work == new.case.work()
    assert stored.structure == new.structure
    assert stored.sessions == (new.session,)
    assert stored.first["step_time"] == 0.011
    assert (stored.source, stored.log) == ("measured", ())


@pytest.mark.parametrize("mode", MODES)
def test_saving_leaves_cases_that_were_not_measured_unchanged(baseline, mode):
    other = new_session([0.01, 0.01], make_case(id="other"))

    merged = merge(baseline, [other], mode=mode, reason="new")

    assert merged.cases.keys() == {*baseline.cases, "other"}
    assert merged.cases.items() >= baseline.cases.items()


def test_missing_leaves_stored_cases_unchanged(baseline):
    assert merge(baseline, [new_session([9.0, 9.0])], mode="missing", reason=None) == baseline


def test_append_adds_a_session_and_changes_nothing_else(baseline):
    new = new_session([0.02, 0.02], structure=make_structure(parameters=1))

    (old,) = baseline.cases.values()
    merged = merge(baseline, [new], mode="append", reason=None).cases[new.case.id]

    assert merged == msgspec.structs.replace(old, sessions=(*old.sessions, new.session))


def test_an_older_session_that_adds_a_metric_is_stored_before_the_newer_ones():
    """Files with sessions out of order are refused."""
    case = make_case()
    newer = make_session([0.01, 0.01], day=12)
    launches = tuple({"peak_memory": 1000.0} for _ in newer.launches)
    newer = msgspec.structs.replace(newer, launches=launches)
    stored = make_baseline({case.id: make_case_baseline(case, newer)})
    older = new_session([0.02, 0.02])

    merged = merge(stored, [older], mode="missing", reason=None)

    assert merged.cases[case.id].sessions == (older.session, newer)


def test_append_never_adds_a_session_of_other_work(baseline):
    new = new_session([0.02, 0.02], make_case(batch_size=128))

    assert merge(baseline, [new], mode="append", reason=None) == baseline


def test_accept_begins_a_new_level_and_logs_reason_and_ratio(baseline):
    new = new_session([0.0220, 0.0220], structure=make_structure(parameters=1))
    (old,) = baseline.cases.values()

    merged = merge(baseline, [new], mode="accept", reason="wider layers").cases[new.case.id]

    assert merged.sessions == (*old.sessions, new.session)
    assert merged.history("step_time").levels == (0, 0, 1)
    assert merged.level("step_time") == pytest.approx(0.0220)
    assert merged.structure == new.structure
    (entry,) = merged.log
    assert (entry.date, entry.reason) == (new.session.date, "wider layers")
    assert entry.commit == make_environment().commit
    assert entry.ratio == pytest.approx(0.0220 / 0.0105)  # against the level


def test_drift_is_relative_to_the_first_session_ever(baseline):
    (case_id,) = baseline.cases
    for step_s in (0.012, 0.014):
        new = new_session([step_s, step_s])
        baseline = merge(baseline, [new], mode="accept", reason=f"step {step_s}")

    assert baseline.cases[case_id].first["step_time"] == 0.01
    assert [entry.reason for entry in baseline.cases[case_id].log] == ["step 0.012", "step 0.014"]


@pytest.mark.parametrize(
    ("case", "same_machine", "kept"),
    [(make_case(), True, 2), (make_case(), False, 0), (make_case(batch_size=128), True, 0)],
    ids=["the same", "another machine", "other work"],
)
def test_accept_keeps_the_older_sessions_of_the_same_work_and_machine(
    baseline, case, same_machine, kept
):
    new = msgspec.structs.replace(new_session([0.02, 0.02], case), same_machine=same_machine)

    merged = merge(baseline, [new], mode="accept", reason="meant").cases[case.id]

    (old,) = baseline.cases.values()
    assert merged.sessions == (*old.sessions[:kept], new.session)
    assert merged.level("step_time") == pytest.approx(0.02)


def test_drift_starts_again_with_other_work(baseline):
    new = new_session([0.05, 0.05], make_case(batch_size=128))

    merged = merge(baseline, [new], mode="accept", reason="larger").cases[new.case.id]

    assert merged.first["step_time"] == 0.05
    assert merged.work == new.case.work()


def test_launches_with_a_level_error_beyond_the_tolerance_are_too_noisy():
    case = make_case(tolerances=Tolerances(step_time=0.05))

    assert too_noisy(new_session([0.010, 0.0105], case)) is None
    why_not = too_noisy(new_session([0.010, 0.012], case))
    # 1.4826 × the median absolute deviation of 1 ms, of 11 ms; over √2.
    assert "launches differ by 13.5%, so the error of the level is ± 9.5%" in why_not
    assert "quieter machine" in why_not


def test_one_outlier_is_not_too_noisy():
    case = make_case(tolerances=Tolerances(step_time=0.05))

    assert too_noisy(new_session([0.010, 0.0101, 0.0102, 0.0103, 0.030], case)) is None


def test_a_difference_in_work_names_field_and_both_values():
    stored = make_case_baseline(make_case(model={"hidden_dim": 4096, "gone": 1}))
    case = make_case(model={"hidden_dim": 2048}, env={"A": "1"})

    assert not is_comparable(stored, case)
    assert work_differences(stored, case) == [
        "env.A unset → 1",
        "model.gone 1 → unset",
        "model.hidden_dim 4096 → 2048",
    ]


def test_other_steps_and_launches_are_comparable():
    case = make_case()
    schedule = msgspec.structs.replace(case.schedule, steps=999, launches=1)

    assert is_comparable(make_case_baseline(case), make_case(schedule=schedule))


@pytest.mark.parametrize("mode", ["missing", "accept"])
def test_the_operations_of_a_step_are_stored(mode):
    new = msgspec.structs.replace(new_session([0.01, 0.01]), flops=10**9)
    before = make_baseline({new.case.id: make_case_baseline(new.case)} if mode == "accept" else {})

    merged = merge(before, [new], mode=mode, reason="why")

    assert merged.cases[new.case.id].flops == 10**9


def test_accepting_a_published_case_logs_the_ratio_to_its_first_figure():
    new = new_session([0.02, 0.02])
    published = msgspec.structs.replace(make_case_baseline(new.case), sessions=())

    merged = merge(make_baseline({new.case.id: published}), [new], mode="accept", reason="ours")

    (entry,) = merged.cases[new.case.id].log
    assert entry.ratio == pytest.approx(2.0)


@pytest.mark.parametrize("mode", MODES)
def test_only_accept_removes_acknowledgements(baseline, mode):
    case, other = make_case(), make_case(id="other")
    given = (make_acknowledgement(case), make_acknowledgement(other))
    before = msgspec.structs.replace(baseline, acknowledged=given)

    merged = merge(before, [new_session([0.01, 0.01])], mode=mode, reason="why")

    assert merged.acknowledged == (given[1:] if mode == "accept" else given)


def test_a_new_acknowledgement_replaces_the_old_one_and_is_sorted():
    case, other = make_case(), make_case(id="another")
    first, tail, elsewhere = (
        make_acknowledgement(case, ratio=1.1),
        make_acknowledgement(case, metric="tail", ratio=1.1),
        make_acknowledgement(other, metric="tail", ratio=1.1),
    )
    again = make_acknowledgement(case, ratio=1.2, reason="see #13")
    baseline = make_baseline()
    for given in (tail, first, elsewhere, again):
        baseline = acknowledge(baseline, given)

    assert baseline.acknowledged == (elsewhere, again, tail)


def test_an_acknowledgement_has_what_it_states_or_the_slow_down_that_is_stored():
    case = make_case()
    slow = msgspec.structs.replace(
        make_session([0.012], day=2), verdicts={"step_time": Outcome.REGRESSION}
    )
    baseline = make_baseline({case.id: make_case_baseline(case, make_session([0.01]), slow)})

    def ratio(**changes):
        return acknowledge(baseline, make_acknowledgement(case, **changes)).acknowledged[0].ratio

    assert ratio() == pytest.approx(1.2)
    assert ratio(ratio=1.5) == 1.5
    assert ratio(metric="tail", until="2025-12-31") is None  # it ends one
    for unbounded in ({"metric": "tail"}, {"metric": "loss"}, {"case": "never stored"}):
        with pytest.raises(BaselineError, match=r"no stored session of .* is slower in .*, so"):
            ratio(**unbounded)


def test_append_stores_that_sessions_of_the_reference_were_slower(baseline):
    """The dates are those of half-days: each run of one is slower, too."""
    (case_id,) = baseline.cases
    again = msgspec.structs.replace(make_session([0.011] * 2), date="2026-01-02T09:00:00+00:00")
    third = msgspec.structs.replace(
        make_session([0.011] * 2, day=3), verdicts={"step_time": Outcome.SUSPECT}
    )
    (old,) = baseline.cases.values()
    longer = msgspec.structs.replace(old, sessions=(*old.sessions, again, third))
    dates = [session.date for session in (old.sessions[1], third)]
    new = msgspec.structs.replace(new_session([0.01] * 2), off_level={"step_time": dates})

    merged = merge(make_baseline({case_id: longer}), [new], mode="append", reason=None)

    red = {"step_time": Outcome.REGRESSION}
    assert [session.verdicts for session in merged.cases[case_id].sessions] == [
        *({}, red, red),
        third.verdicts,  # as it was judged on its day
        {},
    ]


def test_sessions_that_turned_out_to_be_slower_are_those_of_one_host_of_a_pool():
    case_id = make_case().id
    sessions = [
        msgspec.structs.replace(
            make_session([0.01] * 2),
            date=f"2026-01-01T{hour:02}:00:00+00:00",
            environment=make_environment(host=host, pool="ci"),
        )
        for hour, host in enumerate("abab")
    ]
    stored = make_case_baseline(make_case(), *sessions)
    slower = {"step_time": (sessions[1].date,)}
    new = msgspec.structs.replace(new_session([0.01] * 2), off_level=slower)

    merged = merge(make_baseline({case_id: stored}), [new], mode="append", reason=None)

    marked = [bool(session.verdicts) for session in merged.cases[case_id].sessions]
    assert marked == [False, True, False, True, False]


def test_unacknowledged_metrics_are_those_stored_in_any_session():
    case = make_case()
    sessions = make_session([0.01]), make_session([0.01], energy=1.0)
    given = make_acknowledgement(case, metric="tail")
    stored = make_case_baseline(case, *sessions)
    without = msgspec.structs.replace(stored, structure=None, losses={})

    def left(stored, date="2026-06-01"):
        return unacknowledged(
            make_baseline({case.id: stored}, acknowledged=(given,)), case.id, date
        )

    assert left(stored) == ["step_time", "cpu_time", "peak_memory", "energy", "structure", "loss"]
    assert left(without) == ["step_time", "cpu_time", "peak_memory", "energy"]
    assert "tail" in left(stored, "2027-01-01")


@pytest.mark.parametrize(
    ("words", "kept", "without_accept"),
    [
        ("pytest --save-baseline -q", "pytest -q", None),
        ("pytest --save-baseline append -q", "pytest -q", None),
        ("pytest -q --save-baseline=missing", "pytest -q", None),
        ("pytest --save-baseline accept -q", "pytest -q", "pytest -q"),
        ("pytest --save-baseline=accept -q", "pytest -q", "pytest -q"),
        ("pytest -k accept", "pytest -k accept", None),
        ("pytest -q --save-baseline", "pytest -q", None),
    ],
)
def test_the_option_is_taken_out_of_a_command_with_its_mode(words, kept, without_accept):
    assert " ".join(without_saving(words.split())) == kept
    assert " ".join(without_saving(words.split(), ("accept",))) == (without_accept or words)
