"""The environment of a script: what torchrun sets."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import msgspec
import pytest
import torch.distributed as dist

from ddp_perf.config.cases import Variant, cases_of
from ddp_perf.config.suite import ScriptSuite
from ddp_perf.worker.report import STACK_SIGNAL
from ddp_perf.worker.script.run import (
    set_torchrun_variables,
    stack_signal_kept,
)
from tests.unit.duel.script_cases import SCRIPT_SUITE
from tests.unit.worker.script.scripts import destroyed_group, make_script_case

OF_RANK = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}


@pytest.fixture(autouse=True)
def own_environment(monkeypatch):
    """Undo what the tested functions set."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "environ", os.environ.copy())
        yield


def test_env_finds_the_store_and_launches_at_a_time_have_their_own(monkeypatch):
    ports = set()
    meetings = []
    for _ in range(2):
        meetings.append(set_torchrun_variables(make_script_case(), 0, dist.HashStore()))
        for name, value in OF_RANK.items():
            monkeypatch.setenv(name, value)
        assert dist.is_torchelastic_launched()
        ports.add(os.environ["MASTER_PORT"])
        with destroyed_group():
            dist.init_process_group("gloo")
            assert dist.get_world_size() == 1
    assert len(ports) == 2


def test_an_emulated_rank_sees_the_nodes_of_its_network():
    network = "gpus_per_node=4,intra=9GB/s,inter=1GB/s"
    *_, case = cases_of(
        Variant(
            suite=msgspec.convert(
                {**SCRIPT_SUITE, "batch_sizes": [8], "emulated": [8], "network": network},
                ScriptSuite,
            )
        )
    )
    meeting = set_torchrun_variables(case, 0, dist.HashStore())

    assert (os.environ["GROUP_RANK"], os.environ["GROUP_WORLD_SIZE"]) == ("0", "2")
    del meeting


def test_no_other_host_can_reach_the_store_of_a_script():
    meeting = set_torchrun_variables(make_script_case(), 0, dist.HashStore())

    port = f":{int(os.environ['MASTER_PORT']):04X}"
    rows = [
        line.split()
        for table in (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
        for line in table.read_text().splitlines()[1:]
    ]
    listening = [row[1] for row in rows if row[3] == "0A" and row[1].endswith(port)]
    assert listening == ["0100007F" + port]  # 127.0.0.1
    del meeting


def test_a_script_cannot_take_the_signal_that_shows_its_stack():
    before = {number: signal.getsignal(number) for number in (STACK_SIGNAL, signal.SIGUSR2)}

    def handler(number, frame):
        pass

    try:
        with stack_signal_kept():
            assert [signal.signal(number, handler) for number in before] == [*before.values()]
        assert signal.getsignal(STACK_SIGNAL) == before[STACK_SIGNAL]
        assert signal.getsignal(signal.SIGUSR2) is handler
    finally:
        signal.signal(signal.SIGUSR2, before[signal.SIGUSR2])
