"""The backend of the ranks of a launch."""

from __future__ import annotations

import os

import pytest

from ddp_perf.core.launch import LaunchRequest
from ddp_perf.core.strategy import FsdpOptions
from ddp_perf.worker import process_group
from ddp_perf.worker.process_group import backend_of, let_nccl_report, set_variables
from tests.builders import make_case


@pytest.mark.parametrize(
    ("case", "shared_gpu", "backend"),
    [
        ({"tier": "cpu"}, False, "gloo"),
        ({"tier": "gpu"}, False, "nccl"),
        ({"tier": "gpu", "fsdp": FsdpOptions(cpu_offload=True)}, False, "cpu:gloo,cuda:nccl"),
        ({"tier": "gpu"}, True, "gloo"),
    ],
    ids=["CPUs", "GPUs", "shards in the host's memory", "one GPU for all"],
)
def test_ranks_use_nccl_if_each_has_its_own_gpu(case, shared_gpu, backend):
    request = LaunchRequest(case=make_case(**case), round=0, shared_gpu=shared_gpu)

    assert backend_of(request) == backend


@pytest.fixture
def logged(monkeypatch, tmp_path):
    """``logged(environ, …)``: NCCL_DEBUG of a rank, after ranks with this environment began."""

    def run(environ, *, output="kept", tier="gpu", world_size=2, settings=""):
        for name in [name for name in os.environ if name.startswith("NCCL_DEBUG")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("HOME", str(tmp_path))
        (tmp_path / ".nccl.conf").write_text(settings)
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        case = make_case(tier=tier, world_size=world_size)
        with monkeypatch.context() as own:
            own.setattr(os, "environ", dict(os.environ))
            let_nccl_report(LaunchRequest(case=case, round=0, output=output))
            return os.environ.get("NCCL_DEBUG")

    return run


def test_nccl_reports_its_choice_in_a_launch_whose_output_is_kept(logged):
    assert logged({}) == "INFO"
    assert logged({}, output=None) is None
    assert logged({}, world_size=1) is None
    assert logged({}, tier="cpu") is None


@pytest.mark.parametrize("name", ["NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS"])
def test_what_a_user_lets_nccl_print_stays(logged, name):
    before = {name: "VERSION"}

    assert logged(before) == before.get("NCCL_DEBUG")
    assert logged({}, settings=f"{name}=VERSION\n") is None


@pytest.fixture
def interface_of(monkeypatch):
    """``interface_of(environ)``: what a rank that assumes one node lets NCCL listen on."""

    def run(environ, nodes=1):
        names = ("MASTER_ADDR", "LOCAL_WORLD_SIZE", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
        kept = {name: value for name, value in os.environ.items() if name not in names}
        with monkeypatch.context() as own:
            own.setattr(os, "environ", {**kept, **environ})
            set_variables(make_case(tier="gpu", world_size=2, nodes=nodes))
            return os.environ.get("NCCL_SOCKET_IFNAME")

    return run


def test_nccl_listens_on_loopback_only_if_all_ranks_are_known_to_be_here(interface_of):
    elsewhere = {"MASTER_ADDR": "192.0.2.7"}

    assert interface_of({}) == "lo"  # forked ranks
    assert interface_of({"MASTER_ADDR": "127.0.0.1"}) == "lo"
    assert interface_of({**elsewhere, "LOCAL_WORLD_SIZE": "2"}) == "lo"  # torchrun states it
    assert interface_of(elsewhere) is None
    assert interface_of({**elsewhere, "LOCAL_WORLD_SIZE": "1"}, nodes=2) is None


@pytest.mark.parametrize(
    ("tier", "cores", "ranks", "given", "compilers"),
    [
        ("gpu", 128, 8, {}, "16"),
        ("gpu", 128, 1, {}, "32"),  # as many as Inductor starts by itself
        ("gpu", 2, 8, {}, "1"),
        ("gpu", 128, 8, {"TORCHINDUCTOR_COMPILE_THREADS": "3"}, "3"),  # the user's
        ("cpu", 128, 8, {}, None),
    ],
)
def test_the_ranks_of_a_node_share_its_cores_for_compiling(
    monkeypatch, tier, cores, ranks, given, compilers
):
    environ = dict(given)
    monkeypatch.setattr(os, "environ", environ)
    monkeypatch.setattr(process_group, "allowed_cores", lambda: tuple(range(cores)))

    process_group.set_variables(make_case(tier=tier, world_size=ranks))

    assert environ.get("TORCHINDUCTOR_COMPILE_THREADS") == compilers
