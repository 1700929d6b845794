"""Scripts on real ranks: they are run as they are, and what goes wrong in one is said."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ddp_perf.config.cases import Variant, cases_of
from ddp_perf.config.suite import ScriptSuite
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult
from ddp_perf.system.host.processes import state_of
from tests.torch_versions import needs_cpu_shards

# Two ranks train a model that averages its gradients by DDP; the rest is the test's.
BEGINNING = """
import itertools, os, sys, torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def step():
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
"""
_OF_TORCHRUN = (
    *("RANK", "WORLD_", "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_", "OMP_"),
    "TORCH_NCCL_ASYNC",
)
NEEDED = 13  # steps: 3 until they are settled, two that are counted, and 8 timed ones


def request_of(directory, *, ranks=2, **suite):
    """Return a launch of train.py in ``directory``."""
    fields: dict[str, Any] = {"suite": "s", "tier": "cpu", "script": "train.py", "batch_sizes": [4]}
    fields |= {"world_sizes": [ranks], "steps": 8, "warmup": 2}
    fields |= {"start_deadline_s": 60, "step_deadline_s": 30}
    (case,) = cases_of(Variant(suite=msgspec.convert({**fields, **suite}, ScriptSuite)))
    return LaunchRequest(case=case, round=0, import_paths=(str(directory),), probe_steps=2)


@pytest.fixture
def launch(launcher, tmp_path):
    """``launch(text, …)``: the outcome of the script with this text."""

    def run(text, *, beginning=BEGINNING, files=(), **suite):
        (tmp_path / "train.py").write_text(beginning + textwrap.dedent(text), encoding="utf-8")
        for name, content in dict(files).items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(textwrap.dedent(content), encoding="utf-8")
        return launcher.launch(request_of(tmp_path, **suite))

    return run


def measured(outcome):
    """Return the ranks of a launch that must have succeeded."""
    assert isinstance(outcome, LaunchResult), str(outcome)
    return outcome.ranks


def failed(outcome):
    assert isinstance(outcome, LaunchFailure)
    return outcome


def test_a_script_is_main_in_the_environment_of_torchrun(launch, tmp_path):
    """It never comes to its end: the rank ends in the middle, whatever the script catches."""
    ranks = measured(
        launch(
            """
            import atexit, multiprocessing, signal, threading, time  # torch takes seconds to import
            import neighbour

            class Numbers:
                def __len__(self):
                    return 10**6
                def __getitem__(self, index):
                    return torch.full((8,), float(index % 7))

            def main():
                from multiprocessing.util import get_temp_dir
                from torch.utils.data import DataLoader
                rank = int(os.environ["RANK"])
                assert sys.argv == [__file__, "--batch", "4"] and os.path.isabs(__file__)
                assert sys.path[0] == os.path.dirname(__file__)
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    assert pool.map(len, [Numbers()]) == [10**6]  # a class of __main__
                assert dist.is_torchelastic_launched() and neighbour.VALUE == 7
                assert (dist.get_rank(), dist.get_world_size()) == (rank, 2)
                assert os.environ["LOCAL_RANK"] == os.environ["ROLE_RANK"] == str(rank)
                print("started", os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"])
                atexit.register(time.sleep, 3600)
                threading.Thread(target=time.sleep, args=(3600,)).start()
                for number in (signal.SIGTERM, signal.SIGUSR1):
                    signal.signal(number, lambda number, frame: None)
                os.chdir("/")
                batches = iter(DataLoader(Numbers(), batch_size=4, num_workers=1))
                kept = multiprocessing.get_context("spawn").Semaphore()
                names = open(os.path.join(sys.path[0], f"left{rank}"), "w")
                print(kept._semlock.name.removeprefix("/"), file=names, flush=True)
                print(get_temp_dir(), file=names, flush=True)  # sockets of the loader's workers
                with open(os.path.join(sys.path[0], f"children{rank}"), "w") as file:
                    print(*[one.pid for one in multiprocessing.active_children()], file=file)
                sys.stdout.close()
                sys.stderr = None
                for batch in batches:
                    try:
                        optimizer.zero_grad()
                        model(batch).sum().backward()
                        optimizer.step()
                    except BaseException:
                        pass

            if __name__ == "__main__":
                main()
            """,
            beginning=f"if __name__ == '__main__':{textwrap.indent(BEGINNING, '    ')}",
            files={"neighbour.py": "VALUE = 7"},
            args=["--batch", "{batch_size}"],
        )
    )

    assert [rank.script.optimizers for rank in ranks] == [1, 1]
    assert ranks[0].script.steps_at.startswith("train.py:")
    assert ranks[0].structure.buckets == (4 * (8 * 4 + 4),)
    assert all(rank.probe.unsynchronised_backward for rank in ranks)
    pids = [int(pid) for n in (0, 1) for pid in (tmp_path / f"children{n}").read_text().split()]
    assert len(pids) == 2
    assert {state_of(pid) for pid in pids} <= {None, "Z"}
    for n in (0, 1):
        name, sockets = (tmp_path / f"left{n}").read_text().split()
        assert not Path(f"/dev/shm/sem.{name}").exists()
        assert not Path(sockets).exists()


def test_a_script_alone_needs_no_group_and_may_end_with_its_last_step(launch):
    """As many steps as are needed give a result, on a busy machine too, but no probe."""
    alone = """
        import torch
        model = torch.nn.Linear(8, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range({}):
            model(torch.randn(4, 8)).sum().backward()
            optimizer.step()
        {}
    """
    (rank,) = measured(launch(alone.format(NEEDED, ""), beginning="", ranks=1))
    assert len(rank.step_s) == 6
    assert rank.probe is None

    (rank,) = measured(launch(alone.format(NEEDED, "raise SystemExit"), beginning="", ranks=1))
    assert len(rank.step_s) == 6


def test_ranks_that_end_within_further_steps_have_the_same_ones(launch):
    """On a busy machine their script ends while they wait for clean steps, else in the probe."""
    text = f"for _ in range({NEEDED + 3}):\n    step()\ndist.destroy_process_group()\n"

    ranks = measured(launch(text))

    assert [len(rank.step_s) for rank in ranks] == [6, 6]
    assert ranks[0].digest == ranks[1].digest
    assert [rank.probe for rank in ranks] == [None, None]


def test_steps_of_every_kind_are_told_apart(launch):
    """Gradients are accumulated; a scaler skips steps; a second optimizer steps beside."""
    ranks = measured(
        launch(
            """
            scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
            other = torch.optim.Adam(nn.Linear(2, 2).parameters())
            torch.set_default_dtype(torch.float64)
            for number in itertools.count():
                data = torch.randn(4, 8, dtype=torch.float32)
                with model.no_sync():
                    for _ in range(2):
                        scaler.scale(model(data).sum()).backward()
                infinite = float("inf") if number % 2 == 0 else 1.0
                scaler.scale(model(data).sum() * infinite).backward()
                scaler.step(optimizer)
                scaler.update(1.0)
                other.step()
                optimizer.zero_grad()
            """
        )
    )

    for rank in ranks:
        facts = rank.script
        assert facts.micro_steps == (3, 3)
        assert facts.optimizers == 2
        assert abs(2 * facts.skipped - (len(rank.step_s) + len(rank.warmup_s))) <= 1
        assert [one.kind for one in rank.structure.collectives] == ["all_reduce"]
        assert min(rank.probe.unsynchronised_backward) > 0
    assert ranks[0].digest == ranks[1].digest


@needs_cpu_shards
def test_a_sharded_model_is_found_and_a_method_may_end_the_steps(launch):
    ranks = measured(
        launch(
            """
            from torch.distributed.fsdp import fully_shard
            from engine import Engine
            model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
            for layer in model:
                fully_shard(layer)
            fully_shard(model)
            # The optimizers step within the backward.
            owned = {p: torch.optim.SGD([p], lr=0.01) for p in model.parameters()}
            for parameter in model.parameters():
                parameter.register_post_accumulate_grad_hook(lambda p: owned[p].step())
            engine = Engine()
            while True:
                model(torch.randn(4, 8)).sum().backward()
                engine.finish()
            """,
            files={"engine.py": "class Engine:\n    def finish(self):\n        pass\n"},
            steps_by="engine:Engine.finish",
        )
    )

    kinds = {one.kind for one in ranks[0].structure.collectives}
    assert kinds == {"all_gather", "reduce_scatter"}
    assert ranks[0].structure.parameters == 8 * 8 + 8 + 8 * 4 + 4
    assert ranks[0].digest == ranks[1].digest
    assert ranks[0].script.optimizers == 4


# The working directory of the ranks is that of pytest: this script is not in it.
SAVING = """
    import neighbour
    folder = os.path.dirname(__file__)
    rank = dist.get_rank()
    with open(os.path.join(folder, f"places{rank}"), "w") as file:
        print(os.getcwd(), *os.environ, sep="\\n", file=file)
    os.chdir(folder)
    assert open("runs/model.pt").read() == "the user's"
    dist.barrier()
    if rank == 0:
        torch.save(model.state_dict(), "runs/model.pt")
    dist.barrier()
    torch.load("runs/model.pt")
    for number in itertools.count():
        step()
        if number < 20:
            open(f"log{rank}", "a").close()
"""
FILES = {"neighbour.py": "", "runs/model.pt": "the user's"}


def test_what_a_script_writes_is_removed_and_listed(launch, tmp_path):
    """Except where it names the place from the root on: that is listed apart."""
    first, second = measured(launch(SAVING, files=FILES, scratch=True))

    assert (tmp_path / "runs" / "model.pt").read_text() == "the user's"
    place, *_ = (tmp_path / "places0").read_text().splitlines()
    assert (tmp_path / "places1").read_text().splitlines()[0] == place
    assert place.endswith(os.getcwd())
    assert not Path(place).exists()
    logs = {f"{tmp_path}/log{rank}" for rank in (0, 1)}
    assert {*first.script.own_files} - logs == {f"{tmp_path}/runs/model.pt"}
    assert f"{tmp_path}/log0" in first.script.own_files  # rank 1 may open its own later
    assert second.script.own_files == ()
    places = [(f"{tmp_path}/places{rank}",) for rank in (0, 1)]
    assert [one.script.changed_files for one in (first, second)] == places


def test_a_script_that_ends_too_early_has_named_what_it_changed(launch, tmp_path):
    text = f"step()\nopen({str(tmp_path / 'model.pt')!r}, 'w').close()\n"
    error = failed(launch(text, ranks=1, scratch=True)).detail
    assert "train.py ended (at the end of the file) after 1 step" in error
    assert error.endswith(f"; the script changed {tmp_path / 'model.pt'}")


def test_a_script_without_a_private_directory_writes_where_it_says(launch, tmp_path):
    (rank, _) = measured(launch(SAVING, files=FILES, scratch=False))
    assert (tmp_path / "log0").exists()
    assert (tmp_path / "places0").read_text().splitlines()[0] == os.getcwd()
    assert (rank.script.own_files, rank.script.changed_files) == ((), ())


@pytest.mark.slow
def test_a_script_has_the_variables_that_torchrun_sets(launch, tmp_path):
    text = """
    with open(os.path.join(os.path.dirname(__file__), f"names{dist.get_rank()}"), "w") as file:
        print(*os.environ, sep="\\n", file=file)
    for _ in range(int(os.environ.get("STEPS_UNDER_TORCHRUN", 10**6))):
        step()
    """
    measured(launch(text))
    forked = [(tmp_path / f"names{rank}").read_text().splitlines() for rank in (0, 1)]

    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    subprocess.run(
        [*command, str(tmp_path / "train.py")],
        env={**os.environ, "STEPS_UNDER_TORCHRUN": "1"},
        check=True,
        timeout=120,
    )

    for rank in (0, 1):
        theirs = (tmp_path / f"names{rank}").read_text().splitlines()
        ours = {name for name in forked[rank] if name.startswith(_OF_TORCHRUN)}
        wanted = {name for name in theirs if name.startswith(_OF_TORCHRUN)}
        assert ours == wanted - {"TORCHELASTIC_SIGNALS_TO_HANDLE"}  # of torchrun's own process


@pytest.mark.slow
def test_launches_in_a_row_do_not_clash(launch):
    for _ in range(10):
        measured(launch("while True:\n    step()"))


APART = """
if dist.get_rank() == 0:
    for _ in range(16):
        step()
    sys.exit(0)
while True:
    step()
"""


@pytest.mark.parametrize(
    ("text", "rank", "said"),
    [
        pytest.param(
            "for _ in range(5):\n    step()\n",
            None,
            "train.py ended (at the end of the file) after 5 steps (train.py:12), but needs 13:"
            " 8 of `steps:`, and 5 before them; let it train longer, or lower `steps:`",
            id="too few steps",
        ),
        pytest.param(
            "step()\ndist.destroy_process_group()\n",
            None,
            "train.py ended (destroy_process_group at train.py:14) after 1 step (train.py:12),",
            id="no group left",
        ),
        pytest.param(
            "step()\nsys.exit('no data')\n",
            None,
            "train.py failed after 1 step: sys.exit('no data') at train.py:14",
            id="failed exit",
        ),
        pytest.param(
            "sys.exit(0)",
            None,
            "train.py ended (sys.exit(0) at train.py:13) without a step of an optimizer of torch",
            id="no step",
        ),
        pytest.param(
            APART,
            0,
            "train.py ended here (sys.exit(0) at train.py:17) after 16 steps, while rank 1 goes"
            " on; let each rank train as many steps",
            id="apart",
        ),
        pytest.param(
            "import torch.multiprocessing as mp\nmp.spawn(print, nprocs=2)",
            None,
            "train.py starts its own ranks (train.py:14); let it train in the process that it is"
            " started in",
            id="spawn",
        ),
        pytest.param(
            "import multiprocessing\n"
            "def train():\n"
            "    optimizer.step()\n"
            "child = multiprocessing.Process(target=train)\n"
            "child.start(); child.join(); step()",
            None,
            "train.py starts its own ranks (train.py:15)",
            id="forked ranks",
        ),
        pytest.param(
            "for p in model.parameters():\n"
            "    own = torch.optim.SGD([p], lr=0.1)\n"
            "    p.register_post_accumulate_grad_hook(lambda p, own=own: own.step())\n"
            "while True:\n"
            "    model(torch.randn(4, 8)).sum().backward()\n",
            None,
            "train.py steps its optimizers within the backward (train.py:15)",
            id="steps in the backward",
        ),
        pytest.param(
            "model = model.module\n"
            "while True:\n"
            "    try:\n"
            "        step()\n"
            "    except BaseException:\n"
            "        pass\n",
            None,
            "no collective in a step of train.py, so its 2 ranks train apart",
            id="no collective",
        ),
    ],
)
def test_what_is_wrong_with_a_script_is_said(launch, text, rank, said):
    failure = failed(launch(text, step_deadline_s=4))

    assert said in failure.detail
    assert (failure.kind, failure.traceback) == ("exception", "")
    assert rank is None or failure.rank == rank


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "train.py has no process group at its first step (train.py:5), so its 2 ranks"),
        (
            "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)",
            "train.py has a process group of 1 rank, not of 2; let it take RANK and WORLD_SIZE",
        ),
    ],
)
def test_a_script_needs_a_group_of_all_ranks(launch, text, said):
    beginning = "import torch, torch.distributed as dist\nmodel = torch.nn.Linear(8, 4)\n"
    end = "\nmodel(torch.ones(8)).sum().backward()\ntorch.optim.SGD(model.parameters()).step()"

    failure = failed(launch(text + end, beginning=beginning))

    assert said in failure.detail


def test_an_error_of_a_script_is_shown_by_its_own_lines(launch):
    failure = failed(launch("def train():\n    raise ValueError('bad data')\ntrain()\n"))

    assert failure.detail == "ValueError: bad data"
    files = [line for line in failure.user_frames.splitlines() if line.startswith("  File")]
    assert [line.partition(", line ")[2] for line in files] == ["15, in <module>", "14, in train"]


def test_a_script_that_never_steps_is_shown_with_its_stack(launch):
    failure = failed(
        launch(
            "import signal, time\n"
            "signal.signal(signal.SIGUSR1, lambda number, frame: sys.exit(1))\n"
            "time.sleep(3600)\n",
            start_deadline_s=2,
        )
    )

    assert failure.kind == "hang"
    assert failure.detail == (
        "hung before its first step (no optimizer stepped in 2 s): all ranks stopped there, so no"
        " rank is named; raise start_deadline_s, or name the function that ends a step: steps_by:"
        " module:function"
    )
    assert 'train.py", line 15' in failure.stacks["rank 0"]


def test_ranks_with_other_parameters_are_told_what_to_do(launch):
    failure = failed(
        launch(
            """
            torch.manual_seed(dist.get_rank())
            model = nn.Linear(8, 4)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            while True:
                model(torch.randn(4, 8)).sum().backward()
                for parameter in model.parameters():
                    dist.all_reduce(parameter.grad)
                optimizer.step()
            """
        )
    )

    assert failure.kind == "disagreement"
    assert "let all ranks begin with the same ones, and average every gradient" in failure.detail
