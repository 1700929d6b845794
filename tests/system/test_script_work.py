"""The step of a script is counted as that of a workload is: exactly, alone, and by its lines."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ddp_perf.baselines.work import StoredWork, WorkBaseline
from ddp_perf.config.loading import Overrides, load_cases
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult
from ddp_perf.core.verdict import Outcome
from ddp_perf.core.work import CountRequest, StepWork
from ddp_perf.work.session import count_case, judge_work
from ddp_perf.work.text import verdict_lines

NET = """\
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))

    def forward(self, inputs):
        outputs = self.layers(inputs)
        return outputs
"""
TRAIN = """\
import argparse

import torch
from torch import nn
from torch.distributed import destroy_process_group, get_rank, init_process_group, new_group
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from net import Net


def train(batch_size, workers):
    init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    pair = new_group([0, 1], backend="gloo")
    model = nn.parallel.DistributedDataParallel(Net())
    optimizer = torch.optim.AdamW(model.parameters())
    data = TensorDataset(torch.randn(16384, 64), torch.randint(4, (16384,)))
    loader = DataLoader(data, batch_size, sampler=DistributedSampler(data), num_workers=workers)
    for step, (inputs, labels) in enumerate(loader):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        if step % 10 == 0 and get_rank() == 0:
            print(loss.item())
    destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--workers", type=int, default=0)
    arguments = parser.parse_args()
    train(arguments.batch_size, arguments.workers)
"""
SUITE = """\
suite: ours
tier: cpu
script: train.py
args: [--batch-size, "{batch_size}"]
world_sizes: [2]
batch_sizes: [8]
steps: 1
warmup: 0
launches: 1
"""
FILES = {"train.py": TRAIN, "net.py": NET, "suite.yaml": SUITE}
TORCH = "2.13"  # of both sides: the name alone


@pytest.fixture(scope="module")
def edited(tmp_path_factory):
    """``edited(*edits)``: the directory and the case of the project after the edits."""

    def edit(*edits):
        project = tmp_path_factory.mktemp("project")
        files = dict(FILES)
        for file, old, new in edits:
            assert old in files[file]
            files[file] = files[file].replace(old, new)
        for file, text in files.items():
            (project / file).write_text(text, encoding="utf-8")
        (case,) = load_cases([project / "suite.yaml"], Overrides(), (str(project),))
        return str(project), case

    return edit


@pytest.fixture(scope="module")
def counted(launcher, edited):
    """``counted(*edits)``: the case after the edits, and the counts of its rank 0."""

    def count(*edits):
        project, case = edited(*edits)
        request = CountRequest(case=case, compute=True, import_paths=(project,))
        work = launcher.count(request)
        assert isinstance(work, StepWork), f"{work}\n{work.traceback}\n{work.output}"
        return case, work

    return count


@pytest.fixture(scope="module")
def stored(counted):
    """The counts of the script as it is."""
    return counted()


@pytest.fixture
def judged(counted, stored):
    """``judged(*edits)``: the verdict on the script after the edits."""

    def judge(*edits):
        before, step = stored
        entry = StoredWork(options=before.work(), step=step)
        baseline = WorkBaseline(suite=before.suite, torch=TORCH, cases={before.id: entry})
        case, work = counted(*edits)
        return judge_work(case, work, [baseline], torch=TORCH)

    return judge


def workers(number):
    return "suite.yaml", "args: [", f"args: [--workers, '{number}', "


def ranks(number):
    return "suite.yaml", "world_sizes: [2]", f"world_sizes: [{number}]"


BEFORE_STEP = "        optimizer.step()\n"
HEAVIER = {
    "clone": ("train.py", "model(inputs),", "model(inputs.clone()),", "model(inputs.clone())"),
    "item": ("train.py", BEFORE_STEP, f"{BEFORE_STEP}        loss.item()\n", "loss.item()"),
    "all-reduce": (
        *("train.py", BEFORE_STEP, f"{BEFORE_STEP}        pair.allreduce(loss.detach())\n"),
        "pair.allreduce",
    ),
    "neighbour": ("net.py", "layers(inputs)", "layers(inputs.contiguous() + 0)", "inputs.contig"),
}
NEUTRAL = {
    "renamed": ("train.py", "labels", "classes"),
    "compiled": ("train.py", "(Net())", "(torch.compile(Net()))"),
    "moved": ("net.py", "from torch import nn\n", "from torch import nn\n\nWIDTH = 64\n"),
}


@pytest.mark.parametrize("edit", HEAVIER.values(), ids=HEAVIER)
def test_an_edit_of_the_script_that_makes_the_step_do_more_is_red_and_named(judged, edit):
    *change, line = edit

    verdict = judged(change)

    assert verdict.outcome is Outcome.REGRESSION, verdict.reason
    assert line in verdict_lines(verdict)[1], "\n".join(verdict_lines(verdict))
    assert f"{edit[0]}:" in verdict_lines(verdict)[1]


@pytest.mark.parametrize("edit", NEUTRAL.values(), ids=NEUTRAL)
def test_an_edit_of_the_script_that_changes_no_work_is_green(judged, edit):
    verdict = judged(edit)

    assert verdict.outcome is Outcome.PASS, "\n".join(verdict_lines(verdict))


def test_another_process_counts_the_same_and_the_last_rank_agrees(launcher, edited, stored):
    project, case = edited()

    assert count_case(case, launcher, (project,)) == stored[1]


def test_the_batches_of_a_loaders_workers_are_no_work_of_the_step(counted, stored):
    _, work = counted(workers(2))

    assert counted(workers(2))[1] == work
    assert operations(work) < operations(stored[1])


def operations(work):
    return sum(one.count for one in work.operations)


def test_the_workers_of_a_loader_end_with_the_rank(launcher, edited):
    note = "from multiprocessing import active_children\nPIDS = f'{__file__}.pids'\n"
    line = (
        "        print([one.pid for one in active_children()], file=open(PIDS, 'w'), flush=True)\n"
    )
    project, case = edited(
        workers(2),
        ("train.py", "import argparse\n", f"import argparse\n{note}"),
        ("train.py", BEFORE_STEP, BEFORE_STEP + line),
    )

    launcher.count(CountRequest(case=case, compute=True, import_paths=(project,)))

    pids = ast.literal_eval((Path(project) / "train.py.pids").read_text())
    assert len(pids) == 2
    assert [pid for pid in pids if is_running(pid)] == []


def is_running(pid):
    """Return whether the process runs; one that has ended may wait for its reaper."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_lone_rank_has_the_structure_of_real_ones(launcher, edited, stored):
    project, case = edited()

    outcome = launcher.launch(LaunchRequest(case=case, round=0, import_paths=(project,)))

    assert isinstance(outcome, LaunchResult), str(outcome)
    assert {rank.structure for rank in outcome.ranks} == {stored[1].structure}


def test_any_rank_of_256_is_counted_with_its_groups(launcher, edited):
    project, case = edited(ranks(256), HEAVIER["all-reduce"][:3])

    work = launcher.count(CountRequest(case=case, rank=1, compute=True, import_paths=(project,)))

    assert isinstance(work, StepWork), str(work)
    assert [one.group for one in work.collectives] == [2, None]


def test_a_suite_for_gpus_is_counted_with_the_optimizers_of_a_gpu(counted):
    _, work = counted(("suite.yaml", "tier: cpu", "tier: gpu"))

    assert "aten._foreach_lerp_" in {one.name for one in work.operations}


def failure_of(launcher, edited, *edits):
    project, case = edited(*edits)
    failure = count_case(case, launcher, (project,))
    assert isinstance(failure, LaunchFailure)
    return failure


def test_a_script_that_needs_a_gpu_is_not_counted_and_its_line_is_named(launcher, edited):
    failure = failure_of(launcher, edited, ("train.py", "Net())", "Net().to('cuda'))"))

    assert failure.kind == "needs_gpu"
    assert failure.detail == (
        "train.py uses CUDA (train.py:15), and a step is counted on a CPU; let the script choose"
        " its device by torch.cuda.is_available()"
    )


def test_a_script_that_ends_too_early_states_its_steps(launcher, edited):
    failure = failure_of(launcher, edited, ("train.py", "in enumerate(", "in zip(range(2), "))

    assert failure.kind == "exception"
    assert failure.detail == (
        "train.py ended (destroy_process_group at train.py:26) after 2 steps (train.py:23), but"
        " step 5 is the one that is counted; let it train longer"
    )
