"""What a reader should know beside the verdicts: of the machine, the ranks, costs and targets."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.environment import OutlierHost
from ddp_perf.core.launch import KeptOutput, NcclChoice
from ddp_perf.core.measurement import Measurement
from ddp_perf.core.target import Target
from ddp_perf.core.verdict import Outcome
from ddp_perf.report.suite_notes import (
    details,
    headline,
    list_young_levels,
    output_lines,
    pace_notes,
    suite_notes,
    target_lines,
)
from ddp_perf.session.figures import costs_of
from ddp_perf.stats.summary import summaries_of
from tests.builders import (
    make_cases,
    make_environment,
    make_finding,
    make_launch,
    make_measurement,
    make_result,
    make_script_facts,
    make_scripts,
)

ONE, TWO = make_cases()
CHOICE = NcclChoice(version="2.27.5", channels=24, nvls_channels=16, transports=("P2P/CUMEM",))
PASS, UNDECIDED = Outcome.PASS, Outcome.UNDECIDED


def result_of(*findings, cases=(ONE, TWO), **changes):
    measured = [make_measurement(case, [0.01] * 3) for case in cases]
    return make_result(measured, findings=findings, **changes)


@pytest.mark.parametrize(
    ("changes", "end"),
    [
        ({}, ""),
        ({"nodes": 2, "hosts": "a b"}, ", up to 2 nodes: a b"),
        ({"host": "runner-7", "pool": "ci"}, ", host runner-7 of pool ci"),
        ({"alike_nodes": 3, "pool": "ci"}, ", each of 3 nodes of pool ci"),
    ],
)
def test_the_headline_names_accelerator_hosts_and_injections(changes, end):
    environment = make_environment(**changes)
    slowed = result_of(environment=environment, injections=("compute:5%", "no-overlap"))

    assert headline(result_of(environment=environment)) == f"quick on Some Processor{end}"
    assert headline(slowed).endswith(f"{end}, slowed on purpose: compute:5%, no-overlap")


def test_a_quiet_suite_has_no_note():
    assert suite_notes(result_of()) == details(result_of()) == []


def test_the_shared_batch_a_host_that_does_not_fit_and_changes_are_notes():
    outlier = OutlierHost(host="runner-7", pool="ci", ratio=1.23, hosts=5, limit=1.1)
    changed = ("torch 2.12.0 → 2.13.0",)
    cases = make_cases(batch_sizes={"global": [64]})
    findings = [make_finding(case, PASS, changed=changed) for case in cases]

    assert suite_notes(result_of(*findings, cases=cases, outlier_host=outlier)) == [
        "strong scaling: all ranks share 64 samples a step",
        str(outlier),
        "changed since the baseline: torch 2.12.0 → 2.13.0",
    ]


def test_costs_are_stated_if_the_suite_states_a_price():
    cases = make_cases(price_per_gpu_hour=3.6, epoch_samples=32_000)
    measurements = {case.id: make_measurement(case, [0.01] * 3) for case in cases}
    costs = costs_of(measurements, summaries_of(measurements))

    assert suite_notes(result_of(cases=cases, costs=costs)) == [
        "cost per million samples at 3.6 per GPU-hour: none-ws1 0.1562 (an epoch 0.005),"
        " ddp-ws2 0.1562 (an epoch 0.005)"
    ]


def test_metrics_that_passed_throughout_are_named_where_a_worse_one_hides_them():
    passed = [
        make_finding(case, PASS, metric=metric)
        for case in (ONE, TWO)
        for metric in ("peak_memory", "structure")
    ]
    open_, good = (make_finding(ONE, outcome) for outcome in (UNDECIDED, PASS))

    assert details(result_of(open_, *passed)) == [
        "PASS in every judged case: peak memory of a rank, structure"
    ]
    assert details(result_of(good, *passed)) == []
    assert details(result_of(open_, make_finding(TWO, PASS))) == []


def test_the_sessions_that_a_level_lacks_are_counted_once_for_each_number():
    def levels(*sessions):
        cases = zip((ONE, TWO), sessions, strict=False)
        return [
            line.partition(";")[0]
            for line in list_young_levels(
                result_of(
                    *(
                        make_finding(case, PASS, metric=metric, sessions=number)
                        for case, number in cases
                        for metric in ("step_time", "tail")
                    )
                )
            )
        ]

    assert levels(3, 3) == ["2 cases: the level rests on 3 sessions of 5"]
    assert levels(3, 4) == [
        "1 case: the level rests on 4 sessions of 5",
        "1 case: the level rests on 3 sessions of 5",
    ]
    assert levels(5, 0) == []
    waiting = make_finding(ONE, UNDECIDED, sessions=1, assumed_sd=0.03)
    assert list_young_levels(result_of(waiting)) == []


def target(case, figure, outcome):
    wanted = Target(figure=figure, bound=1.0, unit="", file="x.yaml")
    return make_finding(case, outcome, metric=wanted.metric, target=wanted)


def test_targets_are_counted_by_outcome():
    findings = (
        target(ONE, "throughput", Outcome.MEETS_TARGET),
        target(TWO, "throughput", Outcome.MISSES_TARGET),
        target(TWO, "efficiency", UNDECIDED),
        target(TWO, "mfu", Outcome.INVALID),
        make_finding(TWO, PASS),
    )

    assert target_lines(result_of(*findings)) == [
        "4 targets: 1 met, 1 missed, 1 undecided, 1 invalid (throughput target, efficiency target,"
        " MFU target)"
    ]


@pytest.mark.parametrize(("asserted", "lines"), [("step_time", 0), ("target:throughput", 1)])
def test_only_targets_that_a_test_asserts_count(asserted, lines):
    met = target(ONE, "throughput", Outcome.MEETS_TARGET)

    assert len(target_lines(result_of(met, asserted={ONE.id: (asserted,)}))) == lines


def with_output(case, **output):
    """Return the measurement of a case whose first launch printed something."""
    measurement = make_measurement(case, [0.01, 0.01])
    first, *others = measurement.launches
    kept = KeptOutput(**{"directory": f"artifacts/output/quick/{case.id}", **output})
    first = msgspec.structs.replace(first, output=kept)
    return msgspec.structs.replace(measurement, launches=(first, *others))


def test_the_choice_of_nccl_is_stated_once_with_its_cases():
    _, two, _, four = make_cases(batch_sizes=[64, 128])
    result = make_result([with_output(two, nccl=CHOICE), with_output(four, nccl=CHOICE)])

    assert output_lines(result) == [
        "b64, b128: NCCL 2.27.5, 24 channels (16 NVLS), via P2P/CUMEM",
        "printed by the ranks of 2 cases: artifacts/output/quick",
    ]


def test_the_algorithms_follow_and_one_case_is_shown_with_its_own_folder():
    transports = ("NET/IB", "P2P/IPC")
    choice = NcclChoice(channels=1, transports=transports, algorithms=("Reduce TREE/LL",))

    assert output_lines(make_result([with_output(TWO, nccl=choice)])) == [
        f"{TWO.id}: NCCL, 1 channel, via NET/IB and P2P/IPC, Reduce TREE/LL",
        f"printed by the ranks of 1 case: artifacts/output/quick/{TWO.id}",
    ]


def test_an_output_that_is_not_kept_is_a_line_after_the_warnings():
    why = "artifacts/x/rank0.out cannot be written: No space left on device"
    result = make_result([with_output(TWO, problem=why)], warnings=("over TCP sockets",))

    assert output_lines(result) == [
        "WARNING: over TCP sockets",
        f"the ranks' output is not kept: {TWO.id}: {why}",
    ]


def paced(*host_bound):
    """Return a suite whose first case was host-bound in these launches, and its second in none."""
    launches = [make_launch(ONE, i, host_bound=bound) for i, bound in enumerate(host_bound)]
    first = Measurement(case=ONE, launches=tuple(launches), failures=())
    return make_result([first, make_measurement(TWO, [0.0125], host_bound=False)])


@pytest.mark.parametrize(
    ("host_bound", "is_named"),
    [
        ((True,), True),
        ((True, True, False), True),
        ((True, None), True),
        ((False,), False),
        ((None, None), False),
        ((True, False, False), False),
        ((), False),
    ],
)
def test_a_case_that_is_bound_by_the_host_in_half_of_its_launches_is_named(host_bound, is_named):
    notes = pace_notes(paced(*host_bound))

    assert [note[:28] for note in notes] == ["bound by the host: none-ws1."] * is_named


def test_the_remedies_for_a_script_are_no_options_of_a_suite():
    bound = make_measurement(make_scripts()[0], [0.01], host_bound=True)

    assert "CUDA graphs, torch.compile or larger batches" in pace_notes(make_result([bound]))[0]


def test_the_measured_size_of_injected_compute_is_a_note():
    slowed = ((ONE, 0.183), (TWO, 0.2))
    measured = [make_measurement(case, [0.01] * 3, slowdown=share) for case, share in slowed]

    assert pace_notes(make_result(measured, injections=("compute:20%",))) == [
        "measured slow-down by injected compute: none-ws1 +18.3%, ddp-ws2 +20.0%"
    ]


@pytest.mark.parametrize(
    ("facts", "note"),
    [
        ({"micro_steps": (1, 4)}, "a step has 1 to 4 backward passes (train.py:25): its"),
        ({"optimizers": 2}, "2 optimizers step; a step is one of the first"),
        ({"skipped": 3}, "a GradScaler skipped up to 3 steps of a launch"),
        ({"own_files": ("a", "b")}, "the script wrote 2 files, removed after the launch: a, b"),
        (
            {"changed_files": tuple(f"/m/{n}" for n in range(7))},
            "the script CHANGED 7 files OUTSIDE of its private directory, as each launch may do"
            " again: /m/0, /m/1, /m/2, /m/3, /m/4 and 2 more; switch",
        ),
        ({}, None),
        ({"micro_steps": (4, 4)}, None),
    ],
)
def test_what_is_unusual_in_the_steps_of_a_script_is_a_note(facts, note):
    case = make_scripts()[1]
    measured = make_measurement(case, [0.01], script=make_script_facts(**facts), losses={})

    notes = suite_notes(make_result([measured]))

    assert [one[: len(f"{case.id}: {note}")] for one in notes] == (
        [] if note is None else [f"{case.id}: {note}"]
    )
