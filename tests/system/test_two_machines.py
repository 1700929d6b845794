"""One real run, taken for that of two machines: compare shows both and gives no verdict."""

from __future__ import annotations

import json

import msgspec
import pytest
from typer.testing import CliRunner

from ddp_perf.cli.app import app
from ddp_perf.core.launch import LaunchResult
from ddp_perf.core.measurement import Measurement
from ddp_perf.session.result import write_results
from tests.builders import make_cases, make_environment, make_request, make_result


@pytest.fixture(scope="module")
def measured(launcher):
    """Return two launches of a small model on one rank and on two."""
    found = []
    for case in make_cases(steps=8, start_deadline_s=60, step_deadline_s=60):
        request = msgspec.structs.replace(make_request("mlp"), case=case, probe_steps=2)
        launches = []
        for round_ in range(2):
            result = launcher.launch(msgspec.structs.replace(request, round=round_))
            assert isinstance(result, LaunchResult), str(result)
            launches.append(result)
        found.append(Measurement(case=case, launches=tuple(launches), failures=()))
    return found


def write(path, measured, **environment):
    result = make_result(measured, environment=make_environment(**environment))
    write_results(path, [result], complete=True)
    return str(path)


@pytest.mark.parametrize(
    ("environment", "difference"),
    [
        pytest.param(
            {"accelerator": "Other Processor", "accelerator_key": "cpu-other-2c-host"},
            "Some Processor (cpu-some-2c-host) → Other Processor (cpu-other-2c-host)",
            id="another accelerator",
        ),
        pytest.param(
            {"links": "NV4"},
            "interconnect PHB → NV4",
            id="another link",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_run_beside_itself_on_another_machine_has_equal_figures_and_no_verdict(
    measured, tmp_path, environment, difference
):
    one = write(tmp_path / "a.json", measured, links="PHB")
    other = write(tmp_path / "b.json", measured, **{"links": "PHB", **environment})

    done = CliRunner().invoke(app, ["compare", one, other, "--json"])
    text = CliRunner().invoke(app, ["compare", one, other]).stdout

    assert done.exit_code == 75, done.output
    assert difference in " ".join(text.split())
    assert "NO VERDICT" in text
    found = json.loads(done.stdout)
    assert [pair["case_id"] for pair in found["cases"]] == [one.case.id for one in measured]
    for pair in found["cases"]:
        for figure in pair["figures"].values():
            assert figure["old"] == figure["new"]
    assert found["cases"][1]["figures"].keys() == {
        *("step_s", "throughput", "efficiency", "exposed_s")
    }
