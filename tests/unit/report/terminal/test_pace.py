"""Notes on host-bound cases and on injected compute."""

from __future__ import annotations

import pytest

from ddp_perf.core.measurement import Measurement
from ddp_perf.report.terminal.table import pace_notes, suite_table
from tests.builders import make_cases, make_launch, make_measurement, make_result, make_scripts

ONE, TWO = make_cases()


def paced(*host_bound):
    """Return a suite whose first case was host-bound in these launches, and its second in none."""
    launches = [make_launch(ONE, i, host_bound=bound) for i, bound in enumerate(host_bound)]
    first = Measurement(case=ONE, launches=tuple(launches), failures=())
    return make_result([first, make_measurement(TWO, [0.0125], host_bound=False)])


@pytest.mark.parametrize("host_bound", [(True,), (True, True, False), (True, None)])
def test_pace_notes_name_host_bound_cases(host_bound):
    (note,) = pace_notes(paced(*host_bound))

    assert note.startswith("bound by the host: none-ws1. Their GPUs wait for Python")
    assert "bound by the host: none-ws1." in suite_table(paced(*host_bound), 100)


@pytest.mark.parametrize("host_bound", [(False,), (None, None), (True, False, False), ()])
def test_pace_notes_do_not_name_other_cases(host_bound):
    assert pace_notes(paced(*host_bound)) == []


def test_pace_notes_show_the_measured_size_of_injected_compute():
    result = make_result(
        [
            make_measurement(ONE, [0.01] * 3, slowdown=0.183),
            make_measurement(TWO, [0.0125] * 3, slowdown=0.2),
        ],
        injections=("compute:20%",),
    )

    assert pace_notes(result) == [
        "measured slow-down by injected compute: none-ws1 +18.3%, ddp-ws2 +20.0%"
    ]


def test_pace_notes_on_a_script_name_no_option_of_a_suite():
    bound = make_measurement(make_scripts()[0], [0.01], host_bound=True)

    assert "CUDA graphs, torch.compile or larger batches" in pace_notes(make_result([bound]))[0]
