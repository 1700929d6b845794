"""Does the correctness tier see anything? Break one line of a strategy, and see which tests fail.

``python tests/correctness/mutants.py`` runs, for each mutant, the test files that reach what
it changes: on a copy, over gloo, about a minute each on two idle cores. ``--only NAME …`` runs
some. A mutant is killed when every test that names its property fails; no other may fail. Exit
code 1 where that is not so. The table of results is in docs/correctness.md.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOOKS = ("test_hooks", "test_accumulation", "test_post_local_sgd")
# By the file that a mutant changes: the test files whose cases run it.
REACHED_BY = {
    "strategies/hooks/hierarchical.py": HOOKS,
    "strategies/hooks/hook.py": HOOKS,
    "strategies/hooks/topk.py": HOOKS,
    "strategies/hooks/compression.py": HOOKS,
    "strategies/hooks/post_local_sgd.py": HOOKS,
    "strategies/ddp.py": ("test_ddp", "test_accumulation", "test_buffers", "test_unused"),
    "strategies/fsdp.py": ("test_fsdp", "test_precision", "test_accumulation"),
    "strategies/blocks.py": ("test_blocks", "test_fsdp"),
    "strategies/precision.py": ("test_precision", "test_accumulation"),
    "workloads/batches.py": ("test_data",),
    "worker/trainer.py": ("test_ddp", "test_accumulation", "test_blocks", "test_post_local_sgd"),
}
COPIED = ("ddp_perf", "tests", "bench_configs", "conftest.py", "pytest.ini")


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One line of ``ddp_perf``, changed; ``kills`` are patterns of the tests that must fail."""

    name: str
    file: str
    line: str
    becomes: str
    kills: tuple[str, ...]


MUTANTS = (
    Mutant(
        name="hierarchical: no averaging",
        file="strategies/hooks/hierarchical.py",
        line="shard /= dist.get_world_size()",
        becomes="shard /= 1",
        kills=(r"an_exact_hook_equals.*hierarchical", r"micro_steps_equal.*hierarchical"),
    ),
    Mutant(
        name="hierarchical: averaging twice",
        file="strategies/hooks/hierarchical.py",
        line="shard /= dist.get_world_size()",
        becomes="shard /= dist.get_world_size() ** 2",
        kills=(r"an_exact_hook_equals.*hierarchical", r"micro_steps_equal.*hierarchical"),
    ),
    Mutant(
        name="hierarchical: nothing between the groups",
        file="strategies/hooks/hierarchical.py",
        line="dist.all_reduce(shard, group=self._across)",
        becomes="dist.all_reduce(shard, group=self._within)",
        kills=(r"hierarchical",),  # all of them: ranks that disagree fail their launch
    ),
    Mutant(
        name="hooks: one bucket skipped",
        file="strategies/hooks/hook.py",
        line="reduced.set_result(reduce(bucket.buffer(), bucket.index()))",
        becomes="reduced.set_result("
        "reduce(bucket.buffer(), bucket.index()) if bucket.index() else bucket.buffer())",
        kills=(r"hierarchical", r"topk|top_k"),  # all of them: the ranks disagree
    ),
    Mutant(
        name="Top-K: no averaging",
        file="strategies/hooks/topk.py",
        line="return buffer.div_(dist.get_world_size())",
        becomes="return buffer",
        kills=(
            r"an_exact_hook_equals.*topk",
            r"micro_steps_equal.*topk",
            r"lossy_hook_converges.*topk",
        ),
    ),
    Mutant(
        name="Top-K: error feedback dropped",
        file="strategies/hooks/topk.py",
        line="unsent += buffer",
        becomes="unsent.copy_(buffer)",
        kills=(r"lossy_hook.*topk",),
    ),
    Mutant(
        name="PowerSGD: error feedback dropped",
        file="strategies/hooks/compression.py",
        line="start_powerSGD_iter=options.start_step,",
        becomes="start_powerSGD_iter=options.start_step, use_error_feedback=False,",
        kills=(r"lossy_hook.*powersgd",),
    ),
    Mutant(
        name="Top-K: sent values are kept, too",
        file="strategies/hooks/topk.py",
        line="unsent[indices] = 0",
        becomes="unsent[indices] = values",
        kills=(
            r"an_exact_hook_equals.*topk",
            r"micro_steps_equal.*topk",
            r"lossy_hook_converges.*topk",
            r"what_it_did_not_send",
        ),
    ),
    Mutant(
        name="Top-K: one value too many",
        file="strategies/hooks/topk.py",
        line="count = math.ceil(self._ratio * buffer.numel())",
        becomes="count = min(buffer.numel(), math.ceil(self._ratio * buffer.numel()) + 1)",
        kills=(r"bytes_of_top_k",),
    ),
    Mutant(
        name="hooks: start step ignored",
        file="strategies/hooks/hook.py",
        line="chosen = reduce if step >= start_step else all_reduce",
        becomes="chosen = reduce",
        kills=(r"topk|top_k",),  # all of them: a bucket is another one after the first step
    ),
    Mutant(
        name="post-local SGD: parameters never averaged",
        file="strategies/hooks/post_local_sgd.py",
        line="self._averager.average_parameters(parameters)",
        becomes="self._averager.step += 1",
        kills=(r"test_post_local_sgd",),
    ),
    Mutant(
        name="post-local SGD: another step is counted",
        file="worker/trainer.py",
        line="while self._steps < steps or not self._strategy.is_full_step(self._steps):",
        becomes="while self._steps < steps:",
        kills=(r"test_post_local_sgd",),
    ),
    Mutant(
        name="accumulation: DDP synchronises each micro-step",
        file="strategies/ddp.py",
        line="if last or self._must_synchronise:",
        becomes="if True:",
        kills=(r"synchronised_once_a_step.*(ddp|static_graph|bucket_view|topk|hierarchical)",),
    ),
    Mutant(
        name="accumulation: FSDP synchronises each micro-step",
        file="strategies/fsdp.py",
        line="self._sharded.set_requires_gradient_sync(last)",
        becomes="self._sharded.set_requires_gradient_sync(True)",
        kills=(r"synchronised_once_a_step.*(fsdp|no_reshard|cpu_offload)",),
    ),
    Mutant(
        name="accumulation: micro-steps summed, not averaged",
        file="worker/trainer.py",
        line="return loss / self.micro_steps if self.micro_steps > 1 else loss",
        becomes="return loss",
        kills=(
            r"micro_steps_equal",
            r"so_they_do_on_one_rank",
            r"half_precision_accumulates",
            r"checkpointing_equals.*accumulation",
        ),
    ),
    Mutant(
        name="accumulation: a static graph begins without synchronising",
        file="strategies/ddp.py",
        line="self._must_synchronise = case.ddp.static_graph",
        becomes="self._must_synchronise = False",
        kills=(r"micro_steps_equal.*static_graph", r"synchronised_once_a_step.*static_graph"),
    ),
    Mutant(
        name="DDP: buffers are always broadcast",
        file="strategies/ddp.py",
        line="**broadcast_buffers_argument(case.ddp.broadcast_buffers),",
        becomes="**broadcast_buffers_argument(True),",
        kills=(r"running_statistics", r"a_broadcast_is_one_more_collective"),
    ),
    Mutant(
        name="DDP: unused parameters are not looked for",
        file="strategies/ddp.py",
        line="find_unused_parameters=case.ddp.find_unused_parameters,",
        becomes="find_unused_parameters=False,",
        kills=(r"unused_parameters_stay.*find_unused_parameters",),
    ),
    Mutant(
        name="FSDP: always resharded",
        file="strategies/fsdp.py",
        line="reshard_after_forward=reshard,",
        becomes="reshard_after_forward=True,",
        kills=(r"without_resharding",),
    ),
    Mutant(
        name="FSDP: always block by block",
        file="strategies/blocks.py",
        line='if case.fsdp is None or case.fsdp.wrap == "model":',
        becomes="if case.fsdp is None:",
        kills=(r"wrapped_as_a_whole", r"sharding_saves_memory", r"wrap_model"),
    ),
    Mutant(
        name="FSDP: reduces in half precision",
        file="strategies/fsdp.py",
        line="reduce_dtype = None if dtype is None else torch.float32",
        becomes="reduce_dtype = dtype",
        kills=(r"reduces_in_float32",),
    ),
    Mutant(
        name="precision: no autocast",
        file="strategies/precision.py",
        line='if dtype is None or case.strategy == "fsdp":',
        becomes="if True:",
        kills=(r"half_precision_rounds.*(ddp|none)", r"an_overflow_of_fp16.*ddp"),
    ),
    Mutant(
        name="precision: no GradScaler",
        file="strategies/precision.py",
        line='enabled=case.precision == "fp16")',
        becomes="enabled=False)",
        kills=(r"an_overflow_of_fp16",),
    ),
    Mutant(
        name="activation checkpointing left out",
        file="strategies/blocks.py",
        line="block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)",
        becomes="block.forward = functools.partial(block.forward)",
        kills=(r"computes_the_forward_of_each_block_twice",),
    ),
    Mutant(
        name="torch.compile left out",
        file="strategies/blocks.py",
        line="unit.forward = torch.compile(unit.forward)",
        becomes="unit.compile()",
        kills=(r"a_compiled_model",),
    ),
    Mutant(
        name="sampler: not reshuffled",
        file="workloads/batches.py",
        line="sampler.set_epoch(epoch)",
        becomes="sampler.set_epoch(0)",
        kills=(r"order_of_its_own", r"samples_move_between_ranks"),
    ),
    Mutant(
        name="sampler: every rank has all samples",
        file="workloads/batches.py",
        line="dataset, context.world_size, context.rank, shuffle=True",
        becomes="dataset, 1, 0, shuffle=True",
        kills=(r"every_sample_is_seen_once",),
    ),
)


def main(names: list[str]) -> int:
    chosen = [m for m in MUTANTS if not names or any(name in m.name for name in names)]
    print("| mutant | killed by | other failures |\n|---|---|---|")
    survived = 0
    for mutant in chosen:
        failed = _failed_tests(mutant)
        named = {test for test in failed if any(re.search(k, test) for k in mutant.kills)}
        missed = [k for k in mutant.kills if not any(re.search(k, test) for test in failed)]
        survived += bool(missed or failed - named)
        print(f"| {mutant.name} | {_told(named, missed)} | {_told(failed - named, [])} |")
        sys.stdout.flush()
    return int(survived > 0)


def _failed_tests(mutant: Mutant) -> set[str]:
    """``test_file::test_name[parameters]`` of each test that fails on a copy with the mutant."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as directory:
        copy = Path(directory)
        for name in COPIED:
            source = ROOT / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, copy / name)
        _mutate(copy / "ddp_perf" / mutant.file, mutant)
        report = copy / "report.xml"
        files = [f"tests/correctness/{name}.py" for name in REACHED_BY[mutant.file]]
        options = ["-q", "-n", "2", "--dist", "loadfile", "-m", "not gpu", f"--junitxml={report}"]
        subprocess.run(
            [sys.executable, "-m", "pytest", *files, *options],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy)},
            stdout=subprocess.DEVNULL,
            check=False,
        )
        return {
            f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
            for case in ElementTree.parse(report).iter("testcase")
            if case.find("failure") is not None or case.find("error") is not None
        }


def _mutate(path: Path, mutant: Mutant) -> None:
    text = path.read_text(encoding="utf-8")
    if text.count(mutant.line) != 1:
        raise SystemExit(f"{mutant.name}: {mutant.file} does not hold its line once: {mutant.line}")
    path.write_text(text.replace(mutant.line, mutant.becomes), encoding="utf-8")


def _told(tests: set[str], missed: list[str]) -> str:
    """Names without their parameters, and how many of each failed."""
    names = [test.partition("[")[0].rpartition("::")[2] for test in tests]
    told = [f"`{name}` ({names.count(name)})" for name in sorted(set(names))]
    return ", ".join([*told, *(f"**not** `{pattern}`" for pattern in missed)]) or "–"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="parts of names")
    sys.exit(main(parser.parse_args().only))
