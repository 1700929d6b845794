"""The values that a step reads on the host, and what counting them leaves as it was."""

from __future__ import annotations

import contextlib
import warnings

import pytest
import torch
from torch import nn

from ddp_perf.worker.counting.structure import count_structure
from ddp_perf.worker.rank_context import Examination
from ddp_perf.worker.step_probe import count_host_reads
from tests.unit.worker.contexts import CPU, CUDA
from tests.unit.worker.script.scripts import Run

BATCH = torch.ones(2, 4)


@pytest.mark.parametrize("counts", ["structure", "host reads"])
def test_a_compiled_step_is_compiled_again_after_the_one_that_is_counted(counts):
    graphs = []

    def backend(graph, examples):
        def compiled(*args):
            graphs.append(run.steps.done)
            return graph(*args)

        return compiled

    model = nn.Linear(4, 2)
    whole = torch.compile(model, backend=backend)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    run = Run()

    def plan():
        yield
        if counts == "structure":
            yield from count_structure(run.steps.module, Examination())
        else:
            yield from count_host_reads(run.steps, CPU)
        yield
        yield
        return 0

    def script():
        while True:
            whole(BATCH).sum().backward()
            optimizer.step()

    with contextlib.closing(plan()) as closing:
        run.run(script, closing)
    assert graphs == [0, 1, 3, 4]


@pytest.mark.parametrize(("of_optimizer", "reads"), [(True, 3), (False, 1)])
def test_what_a_script_reads_before_its_optimizer_steps_counts_if_it_is_asked_for(
    of_optimizer, reads
):
    """As a GradScaler does, or a script that writes the norm of its gradients."""
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    run = Run()

    def plan():
        yield
        return (yield from count_host_reads(run.steps, CPU, of_optimizer=of_optimizer))

    def script():
        while True:
            loss = model(BATCH).sum()
            loss.item()
            loss.backward()
            loss.item()
            loss.item()
            optimizer.step()

    assert run.run(script, plan()) == (reads, None)  # without a GPU there is no wait for one


WARNING = "called a synchronizing CUDA operation (Triggered internally at CUDAFunctions.cpp:1.)"


@pytest.mark.parametrize(
    ("waits", "count"),
    [
        ((), 0),
        (("copy",), 1),  # .cpu(), .item(), nonzero, a mask: torch warns of each
        (("copy",) * 3, 3),
        (("device", "event", "copy"), 3),  # of the first two torch does not warn
    ],
)
def test_every_wait_for_the_gpu_counts_once(monkeypatch, waits, count):
    mode = ["default"]
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: mode[-1])
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", mode.append)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda.Event, "synchronize", lambda event: None)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    run = Run()

    def wait(how):
        if how == "device":
            torch.cuda.synchronize()
        elif how == "event":
            torch.cuda.Event.synchronize(None)
        elif mode[-1] == "warn":
            warnings.warn(WARNING, stacklevel=1)

    def plan():
        yield
        counted = yield from count_host_reads(run.steps, CUDA)
        yield
        return counted

    def script():
        while True:
            model(BATCH).sum().backward()
            for how in waits:
                wait(how)
            warnings.warn("of the script itself", stacklevel=1)
            optimizer.step()

    with pytest.warns(UserWarning, match="of the script itself") as shown:
        assert run.run(script, plan()) == (0, count)
    assert mode == ["default", "warn", "default"]
    assert all("synchronizing" not in str(one.message) for one in shown)
