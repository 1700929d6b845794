"""``ddp-perf compare`` of two machines: tables without a verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.cli.app import app
from ddp_perf.core.case import with_training
from ddp_perf.core.published import PublishedRow, PublishedTable
from ddp_perf.scaling.machines import UNNAMED
from ddp_perf.session.result import write_results
from tests.builders import (
    make_baseline,
    make_cases,
    make_collectives,
    make_environment,
    make_measurement,
    make_probe,
    make_result,
)

BASELINES = Path(__file__).parents[3] / "baselines"
JITTER = (1.0, 1.01, 0.99)
PCIE = make_environment(
    accelerator="Tesla V100-PCIE-16GB",
    accelerator_key="v100-pcie-16gb",
    interconnect="PHB",
    links="PHB",
)
NVLINK = make_environment(
    accelerator="Tesla V100-SXM2-16GB",
    accelerator_key="v100-sxm2-16gb",
    interconnect="NV2",
    links="NV2",
)


def measured(one_s, two_s):
    """Return a case of one rank and one of two GPUs, at these steps."""
    cases = make_cases(tier="gpu", batch_sizes=[4096])
    steps = {1: one_s, 2: two_s}
    return [
        make_measurement(case, [steps[case.world_size] * by for by in JITTER], probe=make_probe())
        for case in cases
    ]


@pytest.fixture
def results(tmp_path, monkeypatch):
    """``results(name, environment, measurements)`` writes a file and returns its name."""
    monkeypatch.chdir(tmp_path)

    def write(name, environment, measurements, *, complete=True, **changes):
        suite = make_result(measurements, environment=environment, **changes)
        write_results(tmp_path / name, [suite], complete=complete)
        return name

    return write


@pytest.fixture
def pcie_and_nvlink(results):
    return (
        results("pcie.json", PCIE, measured(0.100, 0.115), tier="gpu"),
        results("nvlink.json", NVLINK, measured(0.100, 0.104), tier="gpu"),
    )


def compare(*arguments):
    return CliRunner().invoke(app, ["compare", *map(str, arguments)], env={"COLUMNS": "80"})


def text_of(done):
    return " ".join(done.stdout.split())


def test_two_accelerators_are_side_by_side_without_a_verdict(pcie_and_nvlink, file_regression):
    """What is published for them is beside what they reach."""
    done = compare(*pcie_and_nvlink, "--baselines", BASELINES)

    assert done.exit_code == 75, done.output
    for word in ("PASS", "REGRESSION", "INCOMPARABLE"):
        assert word not in done.stdout
    file_regression.check(done.stdout, extension=".txt", encoding="utf-8")


def test_every_figure_has_both_values_with_intervals_and_the_ratio(pcie_and_nvlink):
    found = json.loads(compare(*pcie_and_nvlink, "--json").stdout)

    one, two = found["cases"]
    assert found["conclusion"] == "UNDECIDED"
    assert one["figures"].keys() == {"step_s", "throughput"}
    efficiency = two["figures"]["efficiency"]
    assert efficiency["old"]["value"] == pytest.approx(0.100 / 0.115, rel=1e-6)
    assert efficiency["new"]["value"] == pytest.approx(0.100 / 0.104, rel=1e-6)
    step = two["figures"]["step_s"]
    assert step["old"]["low"] < 0.115 < step["old"]["high"]
    assert step["ratio"]["value"] == pytest.approx(0.104 / 0.115)
    assert step["ratio"]["low"] < step["ratio"]["value"] < step["ratio"]["high"]
    assert two["figures"]["exposed_s"]["old"]["value"] > 0
    assert two["links"] == ["PHB", "NV2"]


def test_links_are_fitted_to_the_curves_of_both(pcie_and_nvlink):
    (link,) = json.loads(compare(*pcie_and_nvlink, "--json").stdout)["links"]

    assert (link["name"], link["confidence"]) == ("quick: mlp-ddp-fp32-b4096", 0.9)
    for figure in ("latency_s", "bytes_per_s"):
        for side in ("old", "new"):
            band = link[figure][side]
            assert band["low"] <= band["value"]
    slow, fast = (link["latency_s"][side]["value"] for side in ("old", "new"))
    assert fast < slow


def test_links_of_collectives_are_side_by_side(results):
    cases = make_collectives()
    files = []
    for name, byte_s in (("pcie", 1e-10), ("nvlink", 1e-11)):
        measurements = [
            make_measurement(
                case,
                [(1e-5 + case.collective.payload * byte_s) * case.collective.calls * by]
                * case.schedule.launches,
            )
            for case, by in zip(cases, (1.0, 1.01, 0.99, 1.0) * 2, strict=True)
        ]
        environment = PCIE if name == "pcie" else NVLINK
        files.append(results(f"{name}.json", environment, measurements))

    found = json.loads(compare(*files, "--json").stdout)

    assert [link["name"] for link in found["links"]] == [
        "all_reduce, 2 ranks",
        "broadcast, 2 ranks",
    ]
    rates = found["links"][0]["bytes_per_s"]
    assert rates["new"]["value"] / rates["old"]["value"] == pytest.approx(10, rel=0.2)
    assert rates["old"]["low"] < rates["old"]["value"] < rates["old"]["high"]


def test_another_link_of_the_same_gpus_is_another_machine(results):
    other = msgspec.structs.replace(PCIE, links="SYS", interconnect="SYS")
    files = [
        results("phb.json", PCIE, measured(0.100, 0.115), tier="gpu"),
        results("sys.json", other, measured(0.100, 0.130), tier="gpu"),
    ]

    done = compare(*files)

    assert done.exit_code == 75
    assert "two machines: interconnect PHB → SYS" in done.stdout


def test_an_expectation_of_another_link_batch_or_number_of_gpus_is_not_shown(
    pcie_and_nvlink, tmp_path
):
    rows = (
        PublishedRow(world_size=2, batch_size=4096, efficiency=0.5),
        PublishedRow(world_size=8, batch_size=4096, efficiency=0.4),
        PublishedRow(world_size=2, batch_size=256, efficiency=0.3),
    )
    fields: dict[str, Any] = {
        "name": "t",
        "document": "D",
        "where": "w",
        "hardware": "h",
        "rows": rows,
        "work": {"workload": "mlp"},
    }
    tables = (
        PublishedTable(**fields, link="pcie"),
        PublishedTable(**{**fields, "name": "u"}),
        PublishedTable(**{**fields, "work": {"workload": "gpt"}}, link="pcie"),
    )
    BaselineStore(tmp_path / "b").update(
        UNNAMED, lambda _: make_baseline(accelerator=UNNAMED, published=tables)
    )

    found = json.loads(compare(*pcie_and_nvlink, "--baselines", "b", "--json").stdout)

    shown = [one for pair in found["cases"] for one in pair["published"]]
    assert [(one["side"], one["efficiency"]) for one in shown] == [("A", [0.5])]


def test_cases_that_one_machine_lacks_or_that_are_other_work_are_named(results):
    one, two = measured(0.100, 0.115)
    wider = with_training(one.case, model={**one.case.training.model, "hidden_dim": 48})
    files = [
        results("a.json", PCIE, [one, two], tier="gpu"),
        results("b.json", NVLINK, [make_measurement(wider, [0.1]), two], tier="gpu"),
    ]
    only = results("c.json", NVLINK, [two], tier="gpu")

    assert f"NOT COMPARED: {one.case.id}: other work in each file" in text_of(compare(*files))
    assert f"NOT COMPARED: {one.case.id}: only in a.json" in text_of(compare(files[0], only))


def test_two_machines_without_a_common_case_are_refused(results):
    one, two = measured(0.100, 0.115)
    files = (
        results("a.json", PCIE, [one], tier="gpu"),
        results("b.json", NVLINK, [two], tier="gpu"),
    )

    done = compare(*files)

    assert done.exit_code == 4
    assert "INCOMPARABLE: a.json and b.json are of two machines" in done.stderr
    assert "measure the same suite on both" in done.stderr


def test_what_spoils_a_side_is_stated(results):
    files = [
        results("a.json", PCIE, measured(0.1, 0.115), injections=("compute:20%",), tier="gpu"),
        results("b.json", NVLINK, measured(0.1, 0.104), complete=False, tier="gpu"),
    ]

    done = compare(*files)

    assert "slowed on purpose: compute:20%" in " ".join(done.stdout.split())
    assert "b.json is incomplete" in done.stdout
