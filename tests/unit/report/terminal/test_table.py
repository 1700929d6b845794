"""The table of a suite: it fits a terminal, shows every failure, and repeats no name."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.baselines.save import Refused, Saved
from ddp_perf.core.environment import OutlierHost
from ddp_perf.core.launch import Unit
from ddp_perf.core.measurement import Known
from ddp_perf.core.verdict import Outcome
from ddp_perf.report.terminal.table import headline, list_young_levels, suite_table
from ddp_perf.session.figures import costs_of
from ddp_perf.stats.summary import summaries_of
from tests.builders import (
    make_acknowledgement,
    make_cases,
    make_environment,
    make_failure,
    make_finding,
    make_measurement,
    make_result,
)

ONE, TWO = make_cases()


@pytest.fixture
def result():
    """Two ranks take 12.5 ms where one takes 10: 1.6 times as fast, efficiency 80 %."""
    return make_result([make_measurement(ONE, [0.01] * 3), make_measurement(TWO, [0.0125] * 3)])


def test_headline_names_the_accelerator_and_injections(result):
    slowed = msgspec.structs.replace(result, injections=("compute:5%", "no-overlap"))

    assert headline(result) == "quick on Some Processor"
    assert headline(slowed) == (
        "quick on Some Processor, slowed on purpose: compute:5%, no-overlap"
    )


def test_headline_names_the_hosts_of_several_nodes(result):
    environment = msgspec.structs.replace(result.environment, nodes=2, hosts="a b")

    title = headline(msgspec.structs.replace(result, environment=environment))

    assert title.endswith(", up to 2 nodes: a b")


def test_headline_names_the_host_of_a_pool_and_a_note_one_that_does_not_fit(result):
    environment = make_environment(host="runner-7", pool="ci")
    outlier_host = OutlierHost(host="runner-7", pool="ci", ratio=1.23, hosts=5, limit=1.1)
    pooled = msgspec.structs.replace(result, environment=environment, outlier_host=outlier_host)

    assert headline(pooled) == "quick on Some Processor, host runner-7 of pool ci"
    assert str(outlier_host) in " ".join(suite_table(pooled, 120).split())
    assert "does not fit" not in suite_table(result, 120)


def row_of(result, name, width=120):
    lines = [line.split() for line in suite_table(result, width).splitlines()]
    (row,) = [cells for cells in lines if cells and cells[0].startswith(name)]
    return row


def with_findings(result, *findings):
    return msgspec.structs.replace(result, findings=findings)


def test_suite_table_shows_step_time_throughput_and_efficiency(result):
    none = ["none-ws1", "NOT", "JUDGED", "10.00", "6,400", *"––––"]
    ddp = ["ddp-ws2", "NOT", "JUDGED", "12.50", "10,240", "1.60", "80", "%", "20", "%", "–"]
    assert row_of(result, "none") == none
    assert row_of(result, "ddp") == ddp


def test_throughput_heading_has_the_workloads_unit(result):
    unit = Unit(name="tokens", per_sample=512)
    tokens = make_result([make_measurement(ONE, [0.01], unit=unit)])

    assert "samples" in suite_table(result, 80)
    assert "tokens" in suite_table(tokens, 80)
    assert "samples" not in suite_table(tokens, 80)
    assert row_of(tokens, "mlp")[4] == "3,276,800"  # 512 × 64 ÷ 10 ms


def test_strong_scaling_is_stated_below_the_table():
    """A name that is cut to what differs does not show it: there is one batch only."""
    strong = make_cases(batch_sizes={"global": [64]})

    def shown(cases):
        return suite_table(make_result([make_measurement(case, [0.01]) for case in cases]), 80)

    assert "strong scaling: all ranks share 64 samples a step" in shown(strong)
    assert "strong" not in shown(make_cases())


@pytest.fixture
def quick():
    """Return four cases as in cpu_quick, each with the longest verdict."""
    cases = make_cases(batch_sizes=[64, 128])
    measured = [make_measurement(case, [0.0298765]) for case in cases]
    findings = [
        make_finding(case, Outcome.UNDECIDED, reason="busy", minimum_detectable=0.1234)
        for case in cases
    ]
    return with_findings(make_result(measured), *findings)


@pytest.mark.parametrize("width", [40, 80])
def test_suite_table_of_cpu_quick_fits_80_columns(quick, width):
    table, _, _ = suite_table(quick, width).partition("UNDECIDED: ")

    assert max(map(len, table.splitlines())) <= 80
    assert table.count("UNDECIDED") == 4
    assert table.count("12.3 %") == 4
    assert "…" not in table


def test_suite_table_shows_costs_if_the_suite_states_a_price():
    cases = make_cases(price_per_gpu_hour=3.6, epoch_samples=32_000)
    measurements = {case.id: make_measurement(case, [0.01] * 3) for case in cases}
    costs = costs_of(measurements, summaries_of(measurements))
    result = make_result(list(measurements.values()), costs=costs)

    shown = " ".join(suite_table(result, 80).split())

    assert (
        "cost per million samples at 3.6 per GPU-hour: none-ws1 0.1562 (an epoch 0.005),"
        " ddp-ws2 0.1562 (an epoch 0.005)"
    ) in shown
    assert "cost" not in suite_table(make_result(list(measurements.values())), 80)


def test_suite_table_does_not_cut_names(quick):
    table = suite_table(quick, 80)

    for name in ("none-ws1-b64", "ddp-ws2-b64", "none-ws1-b128", "ddp-ws2-b128"):
        assert f"\n{name} " in table


def test_a_failed_case_has_no_figures_for_any_number_of_launches(result):
    failed = msgspec.structs.replace(result.measurements[TWO.id], failures=(make_failure(TWO),))
    result = msgspec.structs.replace(result, measurements={**result.measurements, TWO.id: failed})

    assert row_of(result, "ddp") == ["ddp-ws2", "FAILED", *"–––"]


def test_a_case_without_launches_is_failed(result):
    empty = msgspec.structs.replace(make_measurement(TWO, []), failures=(make_failure(TWO),))

    table = suite_table(make_result([make_measurement(ONE, [0.01]), empty]), 80)

    assert "FAILED" in table


@pytest.mark.parametrize(
    ("others", "worst"),
    [
        ([Outcome.IMPROVEMENT], Outcome.PASS),
        ([Outcome.UNDECIDED, Outcome.IMPROVEMENT], Outcome.UNDECIDED),
        ([Outcome.UNDECIDED, Outcome.SUSPECT], Outcome.SUSPECT),
        ([Outcome.REGRESSION, Outcome.INVALID], Outcome.REGRESSION),
    ],
)
def test_the_worst_verdict_represents_a_case(result, others, worst):
    findings = [make_finding(ONE, outcome, metric="tail") for outcome in others]
    result = with_findings(result, make_finding(ONE, Outcome.PASS), *findings)

    assert row_of(result, "none")[1] == worst.value


def test_metrics_that_passed_throughout_are_named_where_a_worse_one_hides_them(result):
    passed = [
        make_finding(case, Outcome.PASS, metric=metric)
        for case in (ONE, TWO)
        for metric in ("peak_memory", "structure")
    ]
    undecided, good = (make_finding(ONE, o) for o in (Outcome.UNDECIDED, Outcome.PASS))
    line = "PASS in every judged case: peak memory of a rank, structure"

    assert line in suite_table(with_findings(result, undecided, *passed), 80)
    assert "every judged case" not in suite_table(with_findings(result, good, *passed), 80)
    one_of_two = with_findings(result, undecided, make_finding(TWO, Outcome.PASS))
    assert "every judged case" not in suite_table(one_of_two, 80)


def test_what_is_ruled_out_follows_the_table_before_any_verdict(result):
    result = with_findings(
        result,
        make_finding(ONE, Outcome.PASS, upper=1.04),
        make_finding(TWO, Outcome.UNDECIDED, ratio=1.05, upper=1.3, sessions=1, assumed_sd=0.03),
    )

    lines = suite_table(result, 80).splitlines()

    row = next(i for i, line in enumerate(lines) if line.startswith("ddp-ws2"))
    assert lines[row + 1 : row + 4] == [
        "step time: slower by at most 30 % in 2 of 2 cases (99.5 % confidence each)",
        "1 case: how much sessions differ is unknown before 3 are stored; 3 % is assumed",
        "UNDECIDED, too few sessions: ddp-ws2: step time 1.050 × (at most +30 %)",
    ]


def test_findings_that_wait_for_their_first_sessions_share_a_line_for_each_case(result):
    waiting = {"sessions": 2, "assumed_sd": 0.03, "ratio": 1.05, "upper": 1.301}
    findings = [
        make_finding(case, Outcome.UNDECIDED, metric=metric, **waiting)
        for case in (ONE, TWO)
        for metric in ("step_time", "peak_memory")
    ]
    later = {**waiting, "assumed_sd": None, "more_sessions": 4, "reason": "noisy"}
    launches = {**waiting, "assumed_sd": None, "more_launches": 9, "reason": "too few launches"}
    others = [make_finding(ONE, Outcome.UNDECIDED, **each) for each in (later, launches)]

    lines = suite_table(with_findings(result, *findings, *others), 120).splitlines()

    assert [line for line in lines if line.startswith("UNDECIDED, ")] == [
        f"UNDECIDED, too few sessions: {name}: step time 1.050 × (at most +31 %),"
        " peak memory of a rank 1.050 × (at most +31 %)"
        for name in ("none-ws1", "ddp-ws2")
    ]
    assert "because" not in " ".join(lines)
    assert {
        "UNDECIDED: step time of none-ws1: noisy",
        "UNDECIDED: step time of none-ws1: too few launches",
    } <= set(lines)


def test_suite_table_shows_the_reason_of_each_verdict_but_pass(result):
    result = with_findings(
        result,
        make_finding(ONE, Outcome.PASS, reason="all well"),
        make_finding(TWO, Outcome.REGRESSION, reason="twice as slow"),
    )

    table = suite_table(result, 80)

    assert "REGRESSION: step time of ddp-ws2: twice as slow" in table
    assert "all well" not in table


def test_a_disturbance_is_shown_once_for_all_cases_without_figures(result):
    disturbed = {"disturbance": "3 of 3 launches were disturbed: heat", "reason": "+98.7 %"}
    result = with_findings(
        result,
        *(
            make_finding(case, Outcome.INVALID, metric=metric, **disturbed)
            for case in (ONE, TWO)
            for metric in ("step_time", "tail")
        ),
        make_finding(ONE, Outcome.INVALID, metric="efficiency", reason="no such value"),
    )

    notes = suite_table(result, 120).partition("INVALID: ")[2].splitlines()

    assert notes == [
        "scaling cost (step ÷ ideal step) of none-ws1: no such value",
        "INVALID: step time, tail (mean step ÷ its level) of 2 cases: 3 of 3 launches were"
        " disturbed: heat",
    ]


def test_a_reason_with_other_figures_in_each_case_is_shown_once_with_those_of_one(result):
    found = [
        make_finding(case, Outcome.INVALID, disturbance=f"{count} of 3 launches: top")
        for case, count in ((ONE, 2), (TWO, 3))
    ]

    text = suite_table(with_findings(result, *found), 120)

    assert "INVALID: step time of 2 cases, such as none-ws1: 2 of 3 launches: top" in text
    assert text.count("launches: top") == 1


def test_each_disturbance_of_a_case_is_shown_with_its_metrics(result):
    of = {"step_time": "others", "tail": "others", "cpu_time": "too few clean steps"}
    found = (
        make_finding(ONE, Outcome.INVALID, metric=metric, disturbance=disturbance)
        for metric, disturbance in of.items()
    )

    notes = suite_table(with_findings(result, *found), 120).partition("INVALID: ")[2]

    assert notes.splitlines() == [
        "step time, tail (mean step ÷ its level) of none-ws1: others",
        "INVALID: CPU time of a step of none-ws1: too few clean steps",
    ]


def test_cases_without_a_baseline_share_one_line(result):
    result = with_findings(
        result, *(make_finding(case, Outcome.NO_BASELINE) for case in (ONE, TWO))
    )

    assert suite_table(result, 80).endswith("2 cases without a baseline in baselines/some.json")


def test_the_sessions_that_a_reference_lacks_are_counted_once_for_each_number(result):
    def lines(*findings):
        return list_young_levels(with_findings(result, *findings))

    def line(cases, sessions):
        return (
            f"{cases}: the level rests on {sessions} of 5;"
            " --save-baseline=append adds one at least 12 hours later, if that is neither slower"
            " nor faster"
        )

    one, other = (
        [
            make_finding(case, Outcome.PASS, metric=metric, sessions=3)
            for metric in ("step_time", "tail")
        ]
        for case in (ONE, TWO)
    )
    newer = make_finding(TWO, Outcome.PASS, metric="energy", sessions=4)

    assert lines(*one, *other) == [line("2 cases", "3 sessions")]
    assert lines(*one, newer) == [
        line("1 case", "4 sessions"),
        line("1 case", "3 sessions"),
    ]
    assert lines(make_finding(ONE, Outcome.PASS, sessions=5)) == []
    assert lines(make_finding(ONE, Outcome.NO_BASELINE, sessions=0)) == []


def test_equal_notes_on_storing_share_one_line(result):
    stored = Saved(path="cpu.json", mode="append")
    result = msgspec.structs.replace(
        result,
        saved={TWO.id: stored, "third": stored},
        not_saved={ONE.id: Refused(reason="too noisy")},
    )

    lines = suite_table(result, 80).splitlines()

    assert lines[-2:] == [
        "2 cases: appended to cpu.json",
        "none-ws1: not stored: too noisy",
    ]


def test_suite_table_accepts_a_session_without_finished_launches():
    result = make_result([make_measurement(ONE, [])])

    assert "mlp-none-fp32-ws1-b64" in suite_table(result, 120)


def test_changes_since_the_baseline_are_shown_once_for_all_cases(result):
    changed = ("torch 2.12.0 → 2.13.0",)
    noted = with_findings(
        result,
        make_finding(ONE, Outcome.PASS, changed=changed),
        make_finding(TWO, Outcome.REGRESSION, changed=changed),
    )

    text = suite_table(noted, 120)

    assert text.count("changed since the baseline: torch 2.12.0 → 2.13.0") == 1


@pytest.mark.parametrize(
    ("states", "marked"), [(("expected",), True), (("expected", None), False), (("over",), False)]
)
def test_only_a_case_whose_regressions_are_all_expected_is_marked_as_known(result, states, marked):
    entry = make_acknowledgement(TWO)
    findings = [
        make_finding(
            TWO, Outcome.REGRESSION, known=state and Known(acknowledgement=entry, state=state)
        )
        for state in states
    ]

    assert ("(known)" in suite_table(with_findings(result, *findings), 120)) == marked


def test_an_acknowledged_regression_that_is_over_is_named_beside_a_pass(result):
    known = Known(acknowledgement=make_acknowledgement(TWO), state="over")
    finding = make_finding(TWO, Outcome.PASS, known=known)

    shown = " ".join(suite_table(with_findings(result, finding), 120).split())
    assert "the regression is over" in shown


def test_energy_has_a_column_if_any_launch_has_a_reading(result):
    """10 J of each of two ranks over 12 steps of 128 samples; the other case has none."""
    read = make_result(
        [make_measurement(ONE, [0.01]), make_measurement(TWO, [0.0125], energy_j=10.0)]
    )

    assert "J a" not in suite_table(result, 80)
    assert "J a" in suite_table(read, 80)
    assert row_of(read, "none")[-2:] == [*"––"]
    assert row_of(read, "ddp")[-2:] == ["0.013", "–"]


def test_a_case_that_was_stored_is_marked_and_no_longer_without_a_baseline(result):
    findings = [make_finding(case, Outcome.NO_BASELINE) for case in (ONE, TWO)]
    stored = {TWO.id: Saved(path="cpu.json", mode="missing")}
    result = msgspec.structs.replace(
        with_findings(result, *findings), saved=stored, save_mode="missing"
    )

    table = suite_table(result, 120)

    assert table.count("(stored)") == 1
    assert "1 case without a baseline in baselines/some.json" in table
