"""The next command: one for each verdict that is not green, and the most urgent one at the end."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from ddp_perf.baselines.save import Refused, Saved
from ddp_perf.core.target import Target
from ddp_perf.core.verdict import Culprit, Outcome, Settled
from ddp_perf.render.model import NextStep, Status
from ddp_perf.report.next_step import next_step, status_of, step_after
from tests.builders import make_cases, make_failure, make_finding, make_measurement, make_result

ONE, TWO = make_cases()
SESSION = "./ci/bench --ddp-steps 50"
CASE = "pytest -m perf 'test_perf.py::test_step_time[two]'"
APPENDED = f"{SESSION} --save-baseline=append"
SINCE = "git log --oneline --since=2026-01-01 && git diff --stat"
TARGET = Target(figure="efficiency", bound=0.85, unit="", file="bench_configs/x.yaml")
CASE_ACCEPTED = f'{CASE} --save-baseline=accept --ddp-reason "…"'
ACCEPTED = f'{SESSION} --save-baseline=accept --ddp-reason "…"'


def session(*findings, launches=3, **changes):
    cases = (replace(one, schedule=replace(one.schedule, launches=launches)) for one in (ONE, TWO))
    return make_result(
        [make_measurement(case, [0.01] * launches) for case in cases],
        findings=findings,
        command=SESSION,
        commands={TWO.id: CASE},
        **changes,
    )


@pytest.mark.parametrize(
    ("outcome", "changes", "command"),
    [
        (Outcome.NO_BASELINE, {}, f"{SESSION} --save-baseline"),
        (Outcome.INCOMPARABLE, {}, CASE_ACCEPTED),
        (Outcome.REGRESSION, {"baseline_date": "2026-01-01T10:00:00+00:00"}, SINCE),
        (Outcome.REGRESSION, {"metric": "structure"}, CASE_ACCEPTED),
        (Outcome.REGRESSION, {"metric": "loss"}, CASE),  # not finite: nothing changed since
        (Outcome.UNDECIDED, {"metric": "structure"}, CASE_ACCEPTED),
        (Outcome.BAD_NODE, {"metric": "nodes"}, "ddp-perf doctor"),
        (Outcome.INVALID, {}, CASE),
        (Outcome.MISSES_TARGET, {"target": TARGET}, "ddp-perf doctor"),
        (Outcome.INVALID, {"target": TARGET}, CASE),
        (Outcome.UNDECIDED, {"target": TARGET, "launches": 5}, "ddp-perf doctor"),
        (
            Outcome.UNDECIDED,
            {"target": TARGET, "launches": 5, "more_launches": 4},
            f"{CASE} --ddp-launches=9",
        ),
        (Outcome.SUSPECT, {}, APPENDED),
        (Outcome.UNDECIDED, {"sessions": 1, "assumed_sd": 0.03}, APPENDED),
        (Outcome.UNDECIDED, {"sessions": 8}, "ddp-perf doctor"),
        (Outcome.UNDECIDED, {"sessions": 8, "more_sessions": 2}, APPENDED),
        (
            Outcome.UNDECIDED,
            {"sessions": 8, "launches": 5, "more_launches": 4, "likely_launches": 11},
            f"{CASE} --ddp-launches=16",
        ),
        (  # not even 100 more launches likely decide it
            Outcome.UNDECIDED,
            {"sessions": 8, "launches": 5, "more_launches": 4},
            f"{CASE} --ddp-launches=9",
        ),
    ],
)
def test_every_verdict_that_is_not_green_has_a_command(outcome, changes, command):
    finding = make_finding(TWO, outcome, **changes)
    result = session(finding)

    assert step_after(result, finding).command == command
    assert next_step([result]).command == command


def test_every_outcome_is_green_or_has_a_command():
    green = {
        outcome for outcome in Outcome if step_after(session(), make_finding(TWO, outcome)) is None
    }

    assert green == {
        Outcome.PASS,
        Outcome.IMPROVEMENT,
        Outcome.MEETS_TARGET,
    }


def test_a_metric_that_a_stored_case_lacks_is_stored():
    result = session(
        make_finding(TWO, Outcome.PASS, sessions=4),
        make_finding(TWO, Outcome.NO_BASELINE, metric="tail"),
    )

    assert step_after(result, result.findings[1]).command == f"{SESSION} --save-baseline"


def test_work_that_changed_in_every_case_is_accepted_by_one_command():
    result = session(*(make_finding(case, Outcome.INCOMPARABLE) for case in (ONE, TWO)))

    assert next_step([result]).command == ACCEPTED


def test_what_was_to_be_accepted_and_was_not_is_red_with_the_same_command():
    found = make_finding(TWO, Outcome.IMPROVEMENT)
    result = session(found, save_mode="accept", not_saved={TWO.id: Refused(reason="too noisy")})

    assert status_of(result, found) is Status.RED
    assert next_step([result]).command == ACCEPTED


@pytest.mark.parametrize("in_part", [False, True])
def test_a_case_that_was_not_stored_is_to_be_stored_again_and_is_counted(in_part):
    finding = make_finding(TWO, Outcome.NO_BASELINE)
    result = session(
        finding,
        save_mode="append",
        saved={TWO.id: Saved(path="p", mode="append", without={"step_time": "busy"})}
        if in_part
        else {},
        not_saved={} if in_part else {TWO.id: Refused(reason="too noisy", cause="machine")},
    )

    assert status_of(result, finding) is Status.UNDECIDED
    assert str(next_step([result])) == (
        "1 of 2 cases NOT stored completely; meanwhile pytest -m work and ddp-perf duel compare the"
        f" code; run again when the machine is quiet\nnext: {SESSION}"
    )


def test_a_case_that_cannot_be_stored_for_another_reason_is_red():
    finding = make_finding(TWO, Outcome.NO_BASELINE)
    refused = {TWO.id: Refused(reason="one launch has no spread")}

    result = session(finding, save_mode="append", not_saved=refused)

    assert status_of(result, finding) is Status.RED


def test_a_first_session_that_nobody_announced_is_undecided_and_announced_by_the_next_command():
    finding = make_finding(TWO, Outcome.NO_BASELINE)
    refused = {TWO.id: Refused(reason="lost?", cause="unannounced")}

    result = session(finding, save_mode="append", not_saved=refused)

    assert status_of(result, finding) is Status.UNDECIDED
    assert str(next_step([result])) == (
        f"restore {result.baseline_path} if it was lost; if not, announce the first session\n"
        f"next: {SESSION} --save-baseline"
    )


def test_other_work_than_the_stored_counts_is_looked_at_and_not_measured_again():
    finding = make_finding(TWO, Outcome.NO_BASELINE)
    refused = {TWO.id: Refused(reason="it does more", cause="other work")}

    result = session(finding, save_mode="missing", not_saved=refused)

    assert status_of(result, finding) is Status.RED
    assert str(next_step([result])).endswith("next: pytest -m work")


def test_a_changed_clock_is_accepted_or_mended_and_not_waited_for():
    clock = "GPU clock 1,200 MHz, baseline 1,980 MHz: somebody locked it"
    finding = make_finding(TWO, Outcome.INVALID, disturbance=clock)

    assert "--save-baseline=accept" in str(next_step([session(finding)]))


def test_what_was_stored_is_judged_by_the_next_session():
    finding = make_finding(TWO, Outcome.NO_BASELINE)
    stored = {TWO.id: Saved(path="p", mode="missing")}
    result = session(finding, save_mode="missing", saved=stored)

    assert step_after(result, finding) is None
    assert str(next_step([result])) == (
        f"1 case is stored; judge the next session against the baseline\nnext: {SESSION}"
    )


def test_the_most_urgent_verdict_of_all_suites_gives_the_last_line():
    waiting = session(make_finding(TWO, Outcome.UNDECIDED, sessions=1, assumed_sd=0.03))
    known = make_finding(TWO, Outcome.INCOMPARABLE)
    slower = session(make_finding(ONE, Outcome.PASS), make_finding(TWO, Outcome.REGRESSION))

    assert next_step([waiting, slower]).command.startswith("git log ")
    assert next_step([waiting, session(known)]).command == CASE_ACCEPTED


def test_a_failed_case_precedes_every_verdict():
    result = session(make_finding(ONE, Outcome.REGRESSION))
    failed = msgspec.structs.replace(result.measurements[TWO.id], failures=(make_failure(TWO),))
    result = msgspec.structs.replace(result, measurements={**result.measurements, TWO.id: failed})

    assert next_step([result]).command == CASE


def test_ranks_that_were_slowed_on_purpose_are_measured_as_they_are():
    result = session(make_finding(TWO, Outcome.REGRESSION), injections=("compute:5%",))

    assert next_step([result]).command == SESSION


def test_a_green_session_adds_to_a_reference_that_is_not_complete_and_else_ends():
    few, enough = (make_finding(TWO, Outcome.PASS, sessions=count) for count in (3, 5))

    assert next_step([session(few)]).command == APPENDED
    assert next_step([session(enough)]) is None
    assert next_step([]) is None


def test_structures_that_one_launch_stored_are_to_be_committed():
    stored = {"save_mode": "missing", "saved_structures": {ONE.id: "s/a.json", TWO.id: "s/a.json"}}
    one_launch = {"not_saved": {TWO.id: Refused(reason="one launch has no spread")}}
    exact = make_finding(TWO, Outcome.NO_BASELINE, metric="structure")
    times = make_finding(TWO, Outcome.NO_BASELINE)

    assert step_after(session(exact, launches=1, **stored, **one_launch), exact) is None
    assert str(next_step([session(exact, launches=1, **stored, **one_launch)])) == (
        "the structure of 2 cases is stored for every machine; commit it\nnext: git add s/a.json"
    )
    assert next_step([session(exact, times, launches=1, **stored, **one_launch)]).command == (
        f"{SESSION} --ddp-launches=5"
    )


def test_a_further_session_has_the_time_from_which_on_it_counts():
    one = make_finding(
        TWO, Outcome.UNDECIDED, sessions=1, assumed_sd=0.03, baseline_date="2026-01-01T10:00"
    )
    beside = Saved(path="p", mode="append", beside="2026-01-02T07:30:00+00:00")
    two = make_finding(TWO, Outcome.UNDECIDED, sessions=2, assumed_sd=0.03)

    assert "from 2026-01-01 22:00 UTC on" in next_step([session(one)]).why
    appended = session(two, save_mode="append", saved={TWO.id: beside})
    assert "from 2026-01-02 19:30 UTC on" in next_step([appended]).why
    assert next_step([appended]).command == SESSION  # it appends by itself
    assert next_step([session(two)]).why == (
        "add a session of code that you trust, 12 hours after the one before"
    )


def test_no_verdict_on_ranks_that_were_slowed_on_purpose_advises_to_store_them():
    found = make_finding(TWO, Outcome.REGRESSION, metric="structure")
    result = session(found, injections=("extra-allreduce:4096",))

    assert step_after(result, found) is None


def test_what_was_to_be_accepted_needs_its_reason_again():
    found = make_finding(TWO, Outcome.NO_BASELINE)
    refused = {"save_mode": "accept", "not_saved": {TWO.id: Refused(reason="too noisy")}}

    assert next_step([session(found, **refused)]).command == ACCEPTED


@pytest.mark.parametrize(
    "stored", ["--save-baseline", "--save-baseline append", "--save-baseline=append"]
)
def test_a_command_says_once_what_it_stores(stored):
    found = make_finding(TWO, Outcome.UNDECIDED, sessions=1, assumed_sd=0.03)
    result = msgspec.structs.replace(
        session(found), command=f"pytest {stored} -m 'perf and cpu'", save_mode="append"
    )

    assert next_step([result]).command == "pytest -m 'perf and cpu' --save-baseline=append"


def test_what_was_stored_is_judged_without_storing_again():
    found = make_finding(TWO, Outcome.NO_BASELINE)
    stored = {TWO.id: Saved(path="p", mode="missing")}
    result = session(found, save_mode="missing", saved=stored)
    result = msgspec.structs.replace(result, command="pytest -m cpu --save-baseline")

    assert next_step([result]).command == "pytest -m cpu"


def test_a_session_of_one_launch_is_not_advised_to_be_appended():
    green = make_finding(TWO, Outcome.PASS, sessions=3)

    assert next_step([session(green, launches=1)]) is None


@pytest.mark.parametrize(
    ("outcome", "why"),
    [
        (
            Outcome.MISSES_TARGET,
            "check that the machine is fit for its target in bench_configs/x.yaml",
        ),
        (Outcome.INVALID, "change targets in bench_configs/x.yaml, and measure it again"),
        (Outcome.UNDECIDED, "it is too near to its target; see what disturbs this machine"),
    ],
)
def test_the_step_after_a_target_names_the_file_that_states_it(outcome, why):
    finding = make_finding(TWO, outcome, metric=TARGET.metric, target=TARGET)

    assert step_after(session(finding), finding).why == why


def test_the_step_after_a_bad_node_states_how_to_go_on_without_it():
    finding = make_finding(TWO, Outcome.BAD_NODE, metric="nodes")

    step = step_after(session(finding), finding)

    assert "leave it out of the cluster file, or drain it" in step.why


SETTLED = Settled(
    reference="2026-01-01T10:00:00+00:00",
    label="the session of 2026-01-01 (0123abcd)",
    commit="0123abcd4567",
    pairs=12,
)


def test_a_settled_regression_shows_the_changes_since_the_commit_that_it_was_settled_beside():
    found = make_finding(TWO, Outcome.REGRESSION, baseline_date="2026-01-01T10:00:00+00:00")

    step = step_after(session(found, settled={TWO.id: SETTLED}), found)

    assert step.command == "git diff 0123abcd4567"
    assert step.why == "see what changed since the session of 2026-01-01 (0123abcd)"


def test_a_commit_that_was_found_is_shown():
    found = make_finding(TWO, Outcome.REGRESSION)
    culprit = Culprit(
        kind="commit", name="5" * 40, probability=0.98, launches=9, seconds=30.0, why="launches"
    )
    settled = replace(SETTLED, searched=True, culprit=culprit)

    step = step_after(session(found, settled={TWO.id: settled}), found)

    assert step.command == "git show 555555555555"


def test_a_search_without_a_culprit_goes_on_by_ddp_perf_bisect():
    found = make_finding(TWO, Outcome.REGRESSION)
    searched = replace(SETTLED, searched=True)

    step = step_after(session(found, settled={TWO.id: searched}), found)

    assert step.command == f"ddp-perf bisect --good {SETTLED.commit} --bad HEAD --case {TWO.id}"


def test_a_regression_that_could_not_be_settled_has_the_log_of_commits():
    found = make_finding(TWO, Outcome.REGRESSION, baseline_date="2026-01-01T10:00:00+00:00")
    unsettled = Settled(reference=None, problem="no stored session has the state of its code")

    assert step_after(session(found, settled={TWO.id: unsettled}), found).command == SINCE


@pytest.mark.parametrize("metric", ["loss", "structure"])
def test_an_exact_metric_of_a_settled_case_keeps_its_step(metric):
    found = make_finding(TWO, Outcome.REGRESSION, metric=metric)
    settled = session(found, settled={TWO.id: SETTLED})

    assert step_after(settled, found) == step_after(session(found), found)


@pytest.mark.parametrize("outcome", [Outcome.UNDECIDED, Outcome.SUSPECT, Outcome.INVALID])
@pytest.mark.parametrize(
    ("seconds", "minutes", "mode", "command"),
    [
        (61, 2, None, f"{SESSION} --ddp-settle=2m"),
        (300, 5, "append", f"{SESSION} --ddp-settle=5m --save-baseline=append"),
    ],
)
def test_what_was_not_settled_in_time_is_settled_in_more(outcome, seconds, minutes, mode, command):
    found = make_finding(TWO, outcome)
    undecided = {TWO.id: replace(SETTLED, needed_s=seconds)}
    result = session(found, settled=undecided, save_mode=mode)
    if mode is not None:
        result = replace(result, command=f"{SESSION} --save-baseline={mode}")

    assert step_after(result, found) == NextStep(why="settle it in more time", command=command)


def test_a_longer_time_takes_the_place_of_the_one_before():
    """Of two options pytest takes the last one."""
    found = make_finding(TWO, Outcome.UNDECIDED)
    result = replace(
        session(found, settled={TWO.id: replace(SETTLED, needed_s=300)}),
        command="pytest -m perf --ddp-settle=60s",
    )

    command = step_after(result, found).command

    assert command.endswith("--ddp-settle=5m")
