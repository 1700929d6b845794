"""``ddp-perf predict``: its input, its errors and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.baselines.work import WorkBaseline
from ddp_perf.cli.app import app
from ddp_perf.core.launch import Collective
from ddp_perf.core.published import PublishedRow, PublishedTable
from ddp_perf.session.gate.links import find_links
from ddp_perf.session.result import read_results, write_results
from ddp_perf.stats.link import Link, ring_s
from ddp_perf.stats.summary import summaries_of
from tests.builders import (
    make_baseline,
    make_case_baseline,
    make_cases,
    make_collectives,
    make_environment,
    make_measurement,
    make_result,
    make_session,
    make_stored_structure,
    make_structure,
)

BASELINES = Path(__file__).parents[3] / "baselines"
DOCUMENT_004 = BASELINES / "v100-infiniband-hdr.json"
DOCUMENT_000 = BASELINES / "v100-pcie-16gb.json"


def run(*arguments):
    return CliRunner().invoke(app, ["predict", *map(str, arguments)])


@pytest.mark.slow
def test_measured_strong_scaling_is_predicted(tmp_path):
    """32 samples shared: half a step's compute does not shrink, so 8 ranks gain little."""
    cases = make_cases(world_sizes=[1, 2, 4], batch_sizes={"global": [32]})
    result = make_result(
        [make_measurement(case, [0.02 * (0.5 + 0.5 / case.world_size)] * 3) for case in cases]
    )
    file = tmp_path / "results.json"
    write_results(file, [result], complete=True)

    done = run(file, "--world-sizes", "8", "--json")

    assert done.exit_code == 0, done.output
    (prediction,) = json.loads(done.stdout)["predictions"]
    (step,) = [one for one in prediction["steps"] if one["world_size"] == 8]
    assert prediction["series"]["strong"] is True
    assert step["step_s"]["value"] == pytest.approx(0.02 * (0.5 + 0.5 / 8), rel=0.1)
    assert step["throughput"]["value"] == pytest.approx(32 / step["step_s"]["value"])


@pytest.fixture
def results(tmp_path):
    """A results file of one, two and four ranks."""
    steps = {1: [0.010, 0.0101, 0.0102], 2: [0.012, 0.0121, 0.0122], 4: [0.014, 0.0141, 0.0142]}
    cases = make_cases(world_sizes=[1, 2, 4])
    result = make_result([make_measurement(case, steps[case.world_size]) for case in cases])
    write_results(tmp_path / "results.json", [result], complete=True)
    return tmp_path / "results.json"


def test_document_004_fitted_on_up_to_8_gpus_predicts_16_and_32():
    done = run(DOCUMENT_004, "--only", "ddp", "--fit", "1,2,4,8", "--json")

    assert done.exit_code == 0, done.output
    (prediction,) = json.loads(done.stdout)["predictions"]
    steps = {step["world_size"]: step for step in prediction["steps"]}
    assert prediction["fitted"] == [1, 2, 4, 8]
    for ranks in (16, 32):
        band = steps[ranks]["step_s"]
        assert band["low"] < steps[ranks]["given_s"] < band["high"]
        assert (band["high"] - band["low"]) / 2 < 0.1 * band["value"]
    assert {16, 32, 256, 1024, 16384} <= steps.keys()


@pytest.fixture
def contradicting(tmp_path):
    """The times of document 000 as those of a case with one bucket, which overlaps nothing."""
    cases = {(c.world_size, c.batch_size): c for c in make_cases(batch_sizes=[256, 4096])}
    times_ms = {(1, 256): 7.60, (2, 256): 41.40, (1, 4096): 99.77, (2, 4096): 114.24}
    rows = tuple(
        PublishedRow(case=cases[key].id, world_size=key[0], batch_size=key[1], step_ms=step_ms)
        for key, step_ms in times_ms.items()
    )
    table = PublishedTable(name="t", document="A Report", where="w", hardware="h", rows=rows)
    store = BaselineStore(tmp_path)
    structures = {case.id: make_stored_structure(case) for case in cases.values()}
    store.work.update("quick", None, lambda _: WorkBaseline(suite="quick", cases=structures))
    return store.update("x9", lambda _: make_baseline(accelerator="x9", published=(table,)))


def test_contradictory_batches_are_undecided_with_the_reason(contradicting):
    done = run(contradicting)

    assert done.exit_code == 75
    assert done.stdout.count("NOT PREDICTED: contradiction") == 2


def test_a_contradiction_is_reported_if_only_one_of_its_curves_is_selected(contradicting):
    done = run(contradicting, "--only", "batch 256")

    assert done.exit_code == 75
    assert done.stdout.count("NOT PREDICTED: contradiction") == 1


def test_document_000_is_no_contradiction_since_its_depth_is_not_stated():
    done = run(DOCUMENT_000)

    assert done.exit_code == 0, done.output
    assert "contradiction" not in done.stdout
    assert "buckets are not stated" in done.stdout


def test_a_prediction_can_start_from_results(results):
    done = run(results, "--world-sizes", "8")

    assert done.exit_code == 0, done.output
    assert "quick: mlp-ddp-fp32-b64 (measured)" in done.stdout
    assert "fitted on 1, 2, 4 ranks" in done.stdout


def test_a_prediction_can_start_from_a_baseline(tmp_path):
    one, two = make_cases()
    cases = {
        one.id: make_case_baseline(one, make_session([0.010, 0.011, 0.012])),
        two.id: make_case_baseline(two, make_session([0.012, 0.013, 0.014])),
    }
    path = BaselineStore(tmp_path).update("x9", lambda _: make_baseline(cases, accelerator="x9"))

    done = run(path, "--world-sizes", "8")

    assert done.exit_code == 0, done.output
    assert "x9: mlp-ddp-fp32-b64 (measured)" in done.stdout


def test_a_prediction_uses_nodes_price_and_deadline(results):
    done = run(
        *(results, "--world-sizes", "8,16"),
        *("--network", "gpus_per_node=4,intra=100GB/s,inter=10GB/s"),
        *("--price-per-gpu-hour", 3, "--samples", 1e9, "--deadline", 40),
    )

    assert done.exit_code == 0, done.output
    assert "hierarchical" in done.stdout
    assert "best within the limits" in done.stdout


LINKS = "gpus_per_node=8,intra=300GB/s,inter=25GB/s"


@pytest.mark.parametrize("more", ["busy=1ns/B", "jitter=1us", "inter_latency=1-2us"])
def test_a_prediction_takes_the_values_of_a_network_that_it_uses(results, more):
    done = run(results, "--network", f"{LINKS},{more}")

    assert done.exit_code == 4
    assert "ranges, busy and jitter are those of emulated cases; give one value" in done.stderr


def test_the_plot_is_written_and_named_on_stderr(results, tmp_path):
    done = run(results, "--plot", tmp_path / "p.png", "--json")

    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    assert "p.png" in done.stderr
    json.loads(done.stdout)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--world-sizes", "16,x"], "--world-sizes 16,x: it is not a list", id="sizes"),
        pytest.param(["--world-sizes", "0"], "--world-sizes 0: it is not a list", id="no rank"),
        pytest.param(["--fit", ""], "--fit : it is not a list of ranks", id="fit"),
        pytest.param(["--change", "magic"], "--change magic: is not a change", id="change"),
        pytest.param(["--deadline", "9"], "need --samples", id="deadline"),
        pytest.param(["--samples", "-1"], "--samples -1.0: it must be above 0", id="negative"),
        pytest.param(["--samples", "nan"], "--samples nan: it must be above 0", id="NaN"),
        pytest.param(
            ["--network", "gpus_per_node=8"],
            "without intra and inter; write",
            id="links",
        ),
        pytest.param(["--only", "nothing"], "no curve with 'nothing'", id="none"),
        pytest.param(["--plot", "no/such/folder.png"], "cannot be written", id="plot"),
    ],
)
def test_a_mistake_is_refused_in_one_line(results, arguments, said):
    done = run(results, *arguments)

    assert done.exit_code == 4
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(None, "cannot be read: No such file", id="missing"),
        pytest.param("{", "is cut short, or is not JSON", id="cut short"),
        pytest.param("[]", "not a results file", id="other JSON"),
        pytest.param('{"accelerator": "x"}', "not a baseline file", id="broken baseline"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(tmp_path, content, said):
    path = tmp_path / "file.json"
    if content is not None:
        path.write_text(content)

    done = run(path)

    assert done.exit_code == 4
    assert said in done.stderr


NEAR, FAR = Link(latency_s=20e-6, bytes_per_s=8e9), Link(latency_s=60e-6, bytes_per_s=1e9)
BYTES = 16_000_000


def step_on(link, case):
    return 0.05 + ring_s("all_reduce", BYTES, case.world_size, link)


@pytest.fixture
def two_nodes(tmp_path):
    """A session that measured training and all-reduces on one node, and on two."""
    structure = make_structure(
        collectives=(Collective(kind="all_reduce", dtype="float32", bytes=BYTES),),
        buckets=(BYTES,),
    )
    training = make_result(
        [
            make_measurement(
                case, [step_on(FAR if case.nodes > 1 else NEAR, case)] * 3, structure=structure
            )
            for case in make_cases(world_sizes=[1, 2, 4, 8], ranks_per_node=4)
        ]
    )
    calls = make_collectives(collectives=["all_reduce"], world_sizes=[4, 8], ranks_per_node=4)
    measurements = {case.id: calls_of(case, FAR if case.nodes > 1 else NEAR) for case in calls}
    links = find_links(
        measurements, summaries_of(measurements), make_baseline(), make_environment()
    )
    collectives = msgspec.structs.replace(
        make_result(list(measurements.values())), suite="links", links=links
    )
    file = tmp_path / "results.json"
    write_results(file, [training, collectives], complete=True)
    return file


def calls_of(case, link):
    seconds = ring_s("all_reduce", case.collective.payload, case.world_size, link)
    return make_measurement(case, [case.collective.calls * seconds] * 3)


def test_two_nodes_are_predicted_from_one_by_the_measured_links(two_nodes):
    done = run(two_nodes, "--fit", "1,2,4", "--world-sizes", "8,16", "--only", "mlp-ddp", "--json")

    (prediction,) = json.loads(done.stdout)["predictions"]
    (two,) = [step for step in prediction["steps"] if step["world_size"] == 8]
    assert prediction["gpus_per_node"] == 4
    assert two["given_s"] > 0.07  # one link for all would give 0.054
    assert two["step_s"]["low"] <= two["given_s"] <= two["step_s"]["high"]


def test_the_steps_of_several_nodes_are_labelled_by_their_layout(two_nodes):
    shown = run(two_nodes, "--fit", "1,2,4", "--world-sizes", "8,10,16").stdout

    first = [line.split()[0] for line in shown.splitlines() if line.split()]
    assert {"2×4", "4×4"} < set(first)
    assert "10 on 3" in shown
    assert "20 µs and 8 GB/s within a node of 4 ranks, 60 µs and 1 GB/s between" in " ".join(
        shown.split()
    )


def test_links_of_other_nodes_than_those_of_the_curve_are_refused(two_nodes):
    links = "gpus_per_node=8,intra=8GB/s,inter=1GB/s"
    done = run(two_nodes, "--network", links, "--only", "mlp-ddp")

    assert done.exit_code == 75
    assert "have 4 ranks on each, and the links are of nodes with 8" in " ".join(
        done.stdout.split()
    )


def test_one_link_for_points_of_several_nodes_is_noted(two_nodes, tmp_path):
    suites = read_results(two_nodes).suites
    file = tmp_path / "training.json"
    write_results(file, suites[:1], complete=True)

    assert "some points span several nodes" in " ".join(run(file).stdout.split()).lower()
