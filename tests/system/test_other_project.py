"""The package in another project, with its own model, suites, baselines and tests."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.projects import REPOSITORY

MODEL = """
import torch
from torch import nn
from ddp_perf.workloads.workload import BuildContext, Workload

def build(context: BuildContext, *, width: int) -> Workload:
    print(f"built by rank {context.rank}")
    return Workload(
        model=nn.Linear(width, width).to(context.device),
        batch=(torch.randn(context.batch_size, width, device=context.device),),
        loss=lambda module, batch: module(batch[0]).square().mean(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    )
"""
SUITE = """
suite: ours
tier: cpu
workload: our_model:build
model: {width: 16}
world_sizes: [1, 2]
batch_sizes: [4, 8]
steps: 8
warmup: 2
launches: 2
tolerances: {step_time: 0.9}
"""
CASE = "our_model.build-ddp-fp32-ws2-b8"


@pytest.fixture
def project(pytester, monkeypatch):
    """A project with its own places for suites and baselines, and no test of the package."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # the inner run is no worker
    pytester.makepyfile(our_model=MODEL)
    (pytester.path / "perf" / "suites").mkdir(parents=True)
    (pytester.path / "perf" / "suites" / "ours.yaml").write_text(SUITE)
    pytester.makeini(
        """
        [pytest]
        addopts = -p ddp_perf.plugin --import-mode=importlib
        pythonpath = .
        ddp_configs = perf/suites
        ddp_baselines = perf/baselines
        filterwarnings =
            error
            ignore::pytest.PytestAssertRewriteWarning
        """
    )
    return pytester


def test_a_case_is_measured_with_its_single_rank_case_and_reported(project):
    project.makepyfile(
        f"""
        def test_ours(ddp_measure):
            measured = ddp_measure("{CASE}")
            assert measured.case.world_size == 2
            assert measured.figures.unit == "samples"
            assert 0 < measured.figures.scaling.efficiency
            assert measured.finding("step_time").verdict.outcome.value == "NO_BASELINE"
            measured.assert_verdict("structure")
        """
    )
    results = project.path / "results.json"
    options = ("--save-baseline", "--ddp-budget=0", "--ddp-json", results, "-rs", "-v")
    result = project.runpytest(*options)

    result.assert_outcomes(skipped=1)  # by assert_verdict: recorded just now
    # Any case of the suites may be asked for, so all share the budget: step, tail, CPU time and
    # memory of each, efficiency of those with two ranks.
    gated = 2 * 4 + 2 * 5
    result.stdout.fnmatch_lines(
        ["*ours on *", "none-ws1 *", "ddp-ws2 *", f"*(of each {100 * 0.01 / gated:.3g} %)*"]
    )
    data = json.loads(results.read_text())
    assert data["complete"]
    (suite,) = data["suites"]
    launched = {case_id: len(case["launches"]) for case_id, case in suite["measurements"].items()}
    assert launched == {"our_model.build-none-fp32-ws1-b8": 2, CASE: 2}
    (baseline,) = (project.path / "perf" / "baselines").glob("*.json")
    assert CASE in json.loads(baseline.read_text())["cases"]


@pytest.mark.usefixtures("played_ranks")
def test_no_case_is_measured_twice_in_a_session(project):
    project.makepyfile(
        f"""
        def test_first(ddp_measure): ddp_measure("{CASE}")
        def test_again(ddp_measure): assert ddp_measure("{CASE}").figures.scaling
        def test_leg(ddp_measure): ddp_measure("our_model.build-none-fp32-ws1-b8")
        def test_other(ddp_measure): ddp_measure("our_model.build-none-fp32-ws1-b4")
        def test_rest(ddp_measured): assert ddp_measured.figures.step_s
        """
    )
    result = project.runpytest("--ddp-json", "results.json")

    result.assert_outcomes(passed=8)
    says = [line for line in result.stdout.lines if line.startswith("ddp: ours: ")]
    assert [line.split(",")[0] for line in says] == [
        *("ddp: ours: 4 launches", "ddp: ours: 2 launches", "ddp: ours: 2 launches")
    ]
    (suite,) = json.loads((project.path / "results.json").read_text())["suites"]
    assert [len(case["launches"]) for case in suite["measurements"].values()] == [2] * 4
    metrics = [(finding["case_id"], finding["metric"]) for finding in suite["findings"]]
    assert len(metrics) == len(set(metrics)) == 4 * 6 + 2  # efficiency: of two ranks only


def test_an_unknown_case_is_an_error_with_the_nearest_name(project):
    project.makepyfile("def test_ours(ddp_measure): ddp_measure('our_model.build-ddp-fp32-ws2-b9')")
    result = project.runpytest()

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*ddp_measure: no suite has a case 'our_model.build-ddp-fp32-ws2-b9'; did you mean *"]
    )


@pytest.mark.slow  # as test_gate.py shows it in this project
def test_a_regression_against_the_projects_baseline_fails_its_test(project):
    project.makepyfile(
        f"def test_ours(ddp_measure): ddp_measure('{CASE}').assert_verdict('structure')"
    )
    project.runpytest("--save-baseline").assert_outcomes(skipped=1)
    chatty = MODEL.replace(
        "lambda module, batch: module", "lambda module, batch: all_reduce(batch[0]) or module"
    )
    chatty = f"def all_reduce(t): torch.distributed.all_reduce(t[0].clone())\n{chatty}"
    (project.path / "our_model.py").write_text(chatty)
    result = project.runpytest()

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the step does more work than the baseline's: 1 all_reduce *"])


def test_a_failing_rank_fails_the_test_that_asked(project):
    (project.path / "our_model.py").write_text(
        MODEL.replace("module(batch[0]).square", "(1 / 0).square")
    )
    project.makepyfile(f"def test_ours(ddp_measure): ddp_measure('{CASE}')")
    result = project.runpytest()

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*rank ?: ZeroDivisionError: division by zero*", '*our_model.py", line *, in <lambda>']
    )
    assert "worker/process.py" not in str(result.stdout)  # no frame of the package


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('"9","Title","Text"\n', "*train.csv:1: class '9' is not one of 1, 2, 3, 4*"),
        (None, "*DDP_PERF_DATA: there is no file *train.csv*"),
    ],
)
def test_broken_texts_are_a_usage_error_before_anything_is_launched(
    project, monkeypatch, content, says
):
    monkeypatch.setenv("DDP_PERF_DATA", str(project.path))
    path = project.path / "ag_news_csv" / "train.csv"
    path.parent.mkdir()
    if content is not None:
        path.write_text(content)
    suite = SUITE.replace("our_model:build", "text_transformer").replace("{width: 16}", "{}")
    (project.path / "perf" / "suites" / "ours.yaml").write_text(suite)
    project.makepyfile("def test_rest(ddp_measured): pass")
    result = project.runpytest()

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([says])


def test_without_transformers_its_cases_are_skipped_with_the_command(project, monkeypatch):
    monkeypatch.setattr("ddp_perf.system.capacity.PACKAGES", {"distilbert": "no_such_package"})
    suite = SUITE.replace("our_model:build", "distilbert").replace("{width: 16}", "{}")
    suite = suite.replace("suite: ours", "suite: theirs")
    (project.path / "perf" / "suites" / "theirs.yaml").write_text(suite)
    project.makepyfile("def test_rest(ddp_measured): pass")
    result = project.runpytest("-rs", "-k", "b8")

    result.assert_outcomes(passed=2, skipped=2, deselected=4)
    result.stdout.fnmatch_lines(["*distilbert needs no_such_package: pip install transformers*"])


@pytest.mark.slow
def test_a_structure_is_stored_once_and_checked_on_another_machine(project, monkeypatch):
    """What a pull request needs: one launch, no quiet machine, and a file in the repository."""
    shutil.copytree(REPOSITORY / "tests" / "perf", project.path / "tests" / "perf")
    check = ("-m", "perf and cpu", "-k", "structure", "--ddp-launches=1", "--ddp-budget=0", "-rs")
    baselines = project.path / "perf" / "baselines"

    stored = project.runpytest(*check, "--save-baseline")
    assert list(baselines.glob("*.json")) == []
    elsewhere = (*check, "--ddp-machine=other-runners")  # the name of another file of times
    same = project.runpytest(*elsewhere)
    wider = MODEL.replace("nn.Linear(width, width)", "nn.Linear(width, width, bias=False)")
    (project.path / "our_model.py").write_text(wider)
    smaller = project.runpytest(*elsewhere)
    deeper = MODEL.replace(
        "nn.Linear(width, width)", "nn.Sequential(nn.Linear(width, width), nn.Linear(width, 1))"
    )
    (project.path / "our_model.py").write_text(deeper)
    larger = project.runpytest(*elsewhere)

    stored.assert_outcomes(skipped=4, deselected=22)
    stored.stdout.fnmatch_lines([f"stored in {baselines}/structure/ours.json"])
    same.assert_outcomes(passed=4, deselected=22)
    smaller.assert_outcomes(passed=4, deselected=22)  # an improvement
    larger.assert_outcomes(failed=4, deselected=22)
    larger.stdout.fnmatch_lines(
        [f"REGRESSION: structure of {CASE}", "*does more work *: parameters 272 → 289; gradient*"]
    )
