"""Performance tests: each asserts one metric of every case of the suites in bench_configs/.

pytest -m "perf and cpu" --save-baseline    stores the cases that have no baseline yet
pytest -m "perf and cpu"                    judges them against the stored sessions
"""

import pytest

pytestmark = pytest.mark.perf  # each case adds the marker of its tier, cpu or gpu


@pytest.mark.ddp_metric("structure")
def test_structure(ddp_measured, assert_verdict):
    assert_verdict()


@pytest.mark.ddp_metric("loss")
def test_loss(ddp_measured, assert_verdict):
    assert_verdict()


@pytest.mark.ddp_metric("step_time")
def test_step_time(ddp_measured, assert_verdict):
    assert_verdict()


@pytest.mark.ddp_metric("tail")
def test_tail(ddp_measured, assert_verdict):
    assert_verdict()


@pytest.mark.ddp_metric("efficiency")
def test_efficiency(ddp_measured, assert_verdict):
    assert_verdict()


@pytest.mark.ddp_metric("cpu_time")
def test_cpu_time(ddp_measured, assert_verdict):
    assert_verdict()


@pytest.mark.ddp_metric("peak_memory")
def test_peak_memory(ddp_measured, assert_verdict):
    assert_verdict()


@pytest.mark.ddp_metric("energy")  # if the suite has tolerances: {energy: ...}
def test_energy(ddp_measured, assert_verdict):
    assert_verdict()


@pytest.mark.ddp_metric("nodes")  # with each_node: one that is slow, or failed alone
def test_nodes(ddp_measured, assert_verdict):
    assert_verdict()


def test_target(ddp_measured, ddp_target, assert_verdict):  # if the suite has targets: {...}
    assert_verdict()
