"""The accelerators of a suite: this machine's, else those with figures of it, else the default."""

from __future__ import annotations

import pytest

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.work.cost import DEFAULT, accelerators_of
from tests.builders import make_case

CPU = "some-processor"


@pytest.fixture
def shipped(request):
    return BaselineStore(request.config.rootpath / "baselines")


def test_a_machine_with_a_known_gpu_is_its_own(shipped):
    cases = [make_case(suite="a"), make_case(suite="b")]
    assert accelerators_of(cases, "h200", shipped) == {"a": ("h200",), "b": ("h200",)}


def test_a_suite_has_the_known_gpus_that_published_figures_are_of(shipped):
    cases = [make_case(suite="m", workload="mlp"), make_case(suite="d", workload="distilbert")]
    assert accelerators_of(cases, CPU, shipped) == {"m": ("v100-pcie-16gb",), "d": ("t4",)}


def test_a_suite_without_figures_has_the_default(shipped, tmp_path):
    cases = [make_case(suite="u", workload="my_model:build")]
    assert accelerators_of(cases, CPU, shipped) == {"u": DEFAULT}
    assert accelerators_of(cases, CPU, BaselineStore(tmp_path)) == {"u": DEFAULT}
