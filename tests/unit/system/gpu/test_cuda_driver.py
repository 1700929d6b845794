"""A driver that cannot run torch's CUDA is found before a rank fails."""

from __future__ import annotations

import pytest

from ddp_perf.system.gpu.torch_builds import cuda_mismatch


@pytest.mark.parametrize(
    ("torch_cuda", "driver_cuda"),
    [
        pytest.param("12.8", "12.8", id="the same"),
        pytest.param("12.8", "12.0", id="an older minor version of the same major"),
        pytest.param("12.6", "13.0", id="a newer major"),
        pytest.param("11.8", "13.1", id="a major two newer"),
        pytest.param("13.0", None, id="an unknown driver"),
        pytest.param(None, "12.4", id="a torch without CUDA"),
        pytest.param(None, None, id="neither"),
    ],
)
def test_a_driver_that_can_run_torch_is_no_mismatch(torch_cuda, driver_cuda):
    assert cuda_mismatch(torch_cuda, driver_cuda) is None


@pytest.mark.parametrize(
    ("torch_cuda", "driver_cuda", "driver_major", "torch_major"),
    [("13.0", "12.8", 12, 13), ("12.1", "11.4", 11, 12), ("10.2", "9.2", 9, 10)],
)
def test_a_driver_of_an_older_major_version_is_a_mismatch_with_remedies(
    torch_cuda, driver_cuda, driver_major, torch_major
):
    said = cuda_mismatch(torch_cuda, driver_cuda)

    assert "\n" not in said
    assert f"torch is built for CUDA {torch_cuda}, and NVML reports a driver for" in said
    assert f"CUDA {driver_cuda}:" in said
    assert f"a torch built for CUDA {driver_major} " in said
    assert said.endswith(f"a driver for CUDA {torch_major}")
