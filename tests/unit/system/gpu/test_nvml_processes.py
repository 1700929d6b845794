"""The processes on a GPU are those that compute: the server of MPS is none."""

from __future__ import annotations

from types import SimpleNamespace

import pynvml
import pytest

from ddp_perf.system.gpu.nvml import processes_on

SERVER, RANK, STRANGER = 10, 11, 12


@pytest.fixture
def listed(monkeypatch):
    """``listed(computing, clients, …)``: the pids that are returned if NVML lists these."""

    def answers(pids):
        def answer(handle):
            if pids is None:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
            return [SimpleNamespace(pid=pid, usedGpuMemory=None) for pid in pids]

        return answer

    def run(computing, clients, *, names=True):
        def name(pid):
            if not names:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
            return b"/usr/bin/nvidia-cuda-mps-server" if pid == SERVER else "python"

        for function, answer in (
            ("nvmlDeviceGetComputeRunningProcesses", answers(computing)),
            ("nvmlDeviceGetMPSComputeRunningProcesses", answers(clients)),
            ("nvmlSystemGetProcessName", name),
        ):
            monkeypatch.setattr(pynvml, function, answer)
        found = processes_on("handle")
        return None if found is None else [process.pid for process in found]

    return run


@pytest.mark.parametrize("names", [True, False], ids=["names", "a container hides the names"])
@pytest.mark.parametrize(
    ("computing", "clients", "pids"),
    [
        ([SERVER], [RANK], [RANK]),
        ([SERVER], [RANK, STRANGER], [RANK, STRANGER]),
        ([SERVER, STRANGER], [RANK], [STRANGER, RANK]),
        ([SERVER, RANK], [RANK], [RANK]),  # a driver that lists a client twice
        ([RANK, STRANGER], None, [RANK, STRANGER]),
        ([RANK], [], [RANK]),
    ],
)
def test_the_server_of_mps_does_not_compute_and_its_clients_do(
    listed, computing, clients, pids, names
):
    assert listed(computing, clients, names=names) == pids


def test_a_server_that_lists_no_client_apart_is_known_by_its_name(listed):
    assert listed([SERVER, RANK], None) == [RANK]


def test_processes_that_nvml_does_not_list_are_unknown(listed):
    assert listed(None, [RANK]) is None
