"""A user's workload that is faster because it drops half of its batch is red."""

from __future__ import annotations

import json

import pytest

from ddp_perf.baselines.store import BaselineStore

# As in docs/own-workload.md.
MODEL = """
import torch
from ddp_perf.workloads.workload import BuildContext, Workload


def build(context: BuildContext, *, depth: int) -> Workload:
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(depth)))
    batch = (torch.randn(context.batch_size, 64, device=context.device),)
    return Workload(
        model=model.to(context.device),
        batch=batch,
        loss=lambda module, batch: module(batch[0]).square().mean(),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-4),
    )
"""
HALF = MODEL.replace("(batch[0])", "(batch[0][: len(batch[0]) // 2])")
SUITE = """
suite: ours
tier: cpu
workload: our_model:build
model: {depth: 2}
world_sizes: [2]
batch_sizes: [32]
steps: 8
warmup: 2
launches: 2
tolerances: {step_time: 0.9, tail: null, efficiency: 0.9, cpu_time: null}
"""
TESTS = """
import pytest

@pytest.mark.perf
@pytest.mark.ddp_metric("loss")
def test_loss(ddp_measured, assert_verdict):
    assert_verdict()

@pytest.mark.perf
@pytest.mark.ddp_metric("structure")
def test_structure(ddp_measured, assert_verdict):
    assert_verdict()
"""
TWO = "our_model.build-ddp-fp32-ws2-b32"


@pytest.fixture
def project(pytester, monkeypatch):
    """``project(model, *options)`` runs the tests of a project whose workload is ``model``."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # the inner run is no worker
    (pytester.path / "suites").mkdir()
    (pytester.path / "suites" / "ours.yaml").write_text(SUITE)
    pytester.makepyfile(test_ours=TESTS)
    pytester.makeini(
        """
        [pytest]
        addopts = -p ddp_perf.plugin --import-mode=importlib --ddp-budget=0
        pythonpath = .
        ddp_configs = suites
        ddp_baselines = baselines
        """
    )

    def run(model, *options):
        (pytester.path / "our_model.py").write_text(model)
        results = pytester.path / "results.json"
        result = pytester.runpytest("-m", "perf and cpu", "-rs", "--ddp-json", results, *options)
        (suite,) = json.loads(results.read_text())["suites"]
        findings = {(f["case_id"], f["metric"]): f["verdict"] for f in suite["findings"]}
        return result, findings

    return run


@pytest.mark.slow
def test_half_of_the_batch_is_red_by_the_loss_and_by_the_work(project):
    first, _ = project(MODEL, "--save-baseline")
    red, found = project(HALF)
    accepted, _ = project(HALF, "--save-baseline=accept", "--ddp-reason=half is enough")
    green, unchanged = project(HALF)

    first.assert_outcomes(skipped=2)  # stored just now
    red.assert_outcomes(failed=2)
    loss, work = found[TWO, "loss"], found[TWO, "structure"]
    assert loss["outcome"] == work["outcome"] == "REGRESSION"
    assert "loss of step 1: " in loss["reason"]
    assert "the training does other work" in loss["reason"]
    # 2 layers forward, and 3 products backward: the first layer's input needs no gradient.
    before, after = (5 * 2 * samples * 64 * 64 for samples in (32, 16))
    assert "the step computes less than the baseline's" in work["reason"]
    assert f"FLOPs of a step: {before:,} → {after:,}" in work["reason"]
    accepted.assert_outcomes(skipped=2)
    green.assert_outcomes(passed=2)
    assert unchanged[TWO, "loss"]["outcome"] == "PASS"


def test_a_loss_that_is_nan_is_red_without_any_baseline(project):
    result, found = project(MODEL.replace(".mean()", ".mean() * float('nan')"))

    result.assert_outcomes(failed=2)
    assert found[TWO, "loss"]["outcome"] == "REGRESSION"
    assert found[TWO, "loss"]["reason"] == (
        "the loss of step 1 is NaN or infinite on rank 0; fix it, or set tolerances: {loss: null}"
        " in the suite file"
    )


@pytest.mark.slow
def test_random_data_without_a_seed_is_not_stored_and_states_the_remedy(project, pytester):
    unseeded = MODEL.replace("    batch = ", "    torch.seed()\n    batch = ")

    result, found = project(unseeded, "--save-baseline")

    assert found[TWO, "loss"]["outcome"] == "INVALID"
    assert "seed what is random in the workload" in found[TWO, "loss"]["reason"]
    assert "tolerances: {loss: null}" in str(result.stdout)
    (file,) = (pytester.path / "baselines").glob("*.json")
    stored = BaselineStore(file.parent).load(file.stem).cases
    assert stored[TWO].losses == {}
    assert stored[TWO].sessions
