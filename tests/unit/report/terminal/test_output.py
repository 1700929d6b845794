"""The lines of a suite about what its ranks printed."""

from __future__ import annotations

import msgspec

from ddp_perf.core.launch import KeptOutput, NcclChoice
from ddp_perf.report.terminal.table import output_lines, suite_table
from tests.builders import make_cases, make_measurement, make_result

CHOICE = NcclChoice(version="2.27.5", channels=24, nvls_channels=16, transports=("P2P/CUMEM",))


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
    assert "24 channels (16 NVLS)" in suite_table(result, 100)


def test_the_algorithms_follow_and_one_case_is_shown_with_its_own_folder():
    case = make_cases()[1]
    transports = ("NET/IB", "P2P/IPC")
    choice = NcclChoice(channels=1, transports=transports, algorithms=("Reduce TREE/LL",))

    assert output_lines(make_result([with_output(case, nccl=choice)])) == [
        f"{case.id}: NCCL, 1 channel, via NET/IB and P2P/IPC, Reduce TREE/LL",
        f"printed by the ranks of 1 case: artifacts/output/quick/{case.id}",
    ]


def test_an_output_that_is_not_kept_is_a_line_with_its_reason():
    case = make_cases()[1]
    why = "artifacts/x/rank0.out cannot be written: No space left on device"

    assert output_lines(make_result([with_output(case, problem=why)])) == [
        f"the ranks' output is not kept: {case.id}: {why}"
    ]


def test_silent_ranks_have_no_line():
    assert output_lines(make_result([make_measurement(make_cases()[1], [0.01])])) == []


def test_a_warning_comes_first_also_if_nothing_was_printed():
    case = make_cases()[1]
    result = make_result([make_measurement(case, [0.01])], warnings=("2 ranks: over TCP sockets",))

    assert output_lines(result) == ["WARNING: 2 ranks: over TCP sockets"]
    assert "WARNING: 2 ranks: over TCP sockets" in suite_table(result, 100)
