"""``ddp-perf pr``: the gate of a pull request, counts and then a duel, and its one comment."""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ddp_perf.baselines.save import without_saving
from ddp_perf.cli.command import budget_seconds, write_line
from ddp_perf.cli.measuring import TerminatedError, raise_terminated
from ddp_perf.core.case import Tier
from ddp_perf.duel.values import read_duel
from ddp_perf.errors import ConfigError, ExitCode
from ddp_perf.render.checkout import Checkout, artifacts_page
from ddp_perf.render.model import Report
from ddp_perf.report.duel.report import build_duel
from ddp_perf.report.pull_request import ENDS, pull_request_markdown
from ddp_perf.report.work_rows import WORK_DATA, WorkReport, build_work
from ddp_perf.system.capacity import tier_of
from ddp_perf.system.files import write_files
from ddp_perf.system.git import head_of, merge_base
from ddp_perf.system.gpu.gpus import find_gpus
from ddp_perf.system.host.host import job_address
from ddp_perf.system.host.termination import sigterm_calls

COMMENT = "comment.md"
_DUEL_RESULTS = "duel-results.json"
_BUDGETS_S: dict[Tier, float] = {"cpu": 300.0, "gpu": 600.0}
_AT_ONCE = ("-n", "auto")  # counts need no quiet machine
_WORST_FIRST = (
    ExitCode.TERMINATED,
    ExitCode.INTERRUPTED,
    ExitCode.RED,
    ExitCode.ERROR,
    ExitCode.USAGE,
    ExitCode.UNDECIDED,
    ExitCode.GREEN,
    ExitCode.NO_TESTS,
)


def pr(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PYTEST ARGUMENTS]",
            help="Of both sessions, as -k mlp or tests/; what stores is of the counts alone.",
        ),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            metavar="REVISION",
            help="The branch that the change is for; side A is the commit where they went apart."
            " [default: counts alone]",
        ),
    ] = None,
    tier: Annotated[
        Tier | None, typer.Option(help="What the duel measures. [default: GPUs if there are any]")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Of the duel at most. [default: 5m; on GPUs 10m]"),
    ] = None,
    report: Annotated[
        Path, typer.Option(metavar="DIR", help="The directory of the comment and the pages.")
    ] = Path("artifacts/pr"),
) -> None:
    """Count what each step does, measure the branch beside its base, and write one comment.

    First `pytest -m work` compares the counts with the stored ones. With --base a duel follows, of
    the cases that a changed file can touch; also if counts are red: it shows what that costs.
    Uncommitted changes count. The duel needs the whole history of git, and no stored session.

    \b
    Exit code, the worst of both; others are those of pytest --ddp-strict:
      0  green
      1  red: a step does other work, a rank failed, or a case is slower
      4  usage: an argument, a suite, or a base that is not there
      75  undecided: nothing is stored for a case, or the duel did not decide too many
    """
    others = arguments or []
    if any(word.startswith("-m") for word in others):
        raise ConfigError("-m: each step selects its tests by a marker of its own; use -k or paths")
    duel = None if base is None else _duel(base, tier, budget, without_saving(others))
    report.mkdir(parents=True, exist_ok=True)
    for name in (WORK_DATA, _DUEL_RESULTS, COMMENT):
        (report / name).unlink(missing_ok=True)  # of an earlier run
    counting = ["-m", "work", *(_AT_ONCE if importlib.util.find_spec("xdist") else ()), *others]
    files = f"--junitxml={report}/junit.xml", f"--ddp-report={report}"
    codes = {"counts": _run(counting, *files)}
    if duel is not None and codes["counts"] in ENDS:
        files = f"--junitxml={report}/junit-duel.xml", f"--ddp-report={report}"
        codes["duel"] = _run(duel, *files, f"--ddp-json={report / _DUEL_RESULTS}")
    _write_comment(report, codes, os.environ)
    raise typer.Exit(_worst(codes.values()))


def _duel(base: str, tier: Tier | None, budget: str | None, others: Sequence[str]) -> list[str]:
    """Return the arguments of the duel, of which none is refused after the counts only."""
    commit = merge_base(Path.cwd(), base)
    machine = find_gpus()
    chosen: Tier = tier or tier_of(machine, meant="--tier cpu")
    seconds = _BUDGETS_S[chosen] if budget is None else budget_seconds(budget)
    duel = ["-m", "gpu" if chosen == "gpu" else "perf and cpu", f"--ddp-against={commit}"]
    duel += [f"--ddp-budget={seconds:g}s", "--ddp-touched"]
    if chosen == "gpu":  # a case for more GPUs than there are is excused
        duel.append(f"--ddp-expect-devices={len(machine.gpus)}")
    return [*duel, *_without_reason(others)]


def _without_reason(words: Sequence[str]) -> list[str]:
    """Return a command's words without --ddp-reason, of which the text may be the next word."""
    option = "--ddp-reason"
    return [
        word
        for before, word in zip(["", *words], words, strict=False)
        if option not in (before, word.partition("=")[0])
    ]


def _run(arguments: Sequence[str], *files: str) -> int:
    """Run a strict pytest session, and return its exit code. SIGTERM ends it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *arguments, "--ddp-strict", *files],
        # The comment is the summary of a GitHub job; its last line advises no files.
        env={
            **{name: text for name, text in os.environ.items() if name != "GITHUB_STEP_SUMMARY"},
            "DDP_PERF_COMMAND": shlex.join([_pytest(), *arguments]),
        },
    )
    try:
        with sigterm_calls(raise_terminated):
            code = process.wait()
    except TerminatedError:
        process.terminate()
        process.wait()
        return ExitCode.TERMINATED
    except KeyboardInterrupt:  # the terminal has sent it to the session, too
        code = process.wait()
    return 128 - code if code < 0 else code


def _pytest() -> str:
    """Return how a shell in this directory starts the same pytest."""
    own = Path(sys.prefix)
    return f"{own.name}/bin/pytest" if own.parent == Path.cwd() else "pytest"


def _write_comment(directory: Path, codes: Mapping[str, int], environ: Mapping[str, str]) -> None:
    """Write the comment, and append it to the summary of a GitHub job."""
    head = head_of(Path.cwd())
    checkout = Checkout.of_job(
        [".", "src"], Path.cwd(), environ, None if head is None else head.commit
    )
    pages = artifacts_page(job_address(environ))
    text = pull_request_markdown(
        codes, _duel_report(directory), _work_report(directory), checkout, pages
    )
    write_files(directory, [(COMMENT, text.encode("utf-8", "replace"))])
    write_line(f"the comment: {directory / COMMENT}")
    if path := environ.get("GITHUB_STEP_SUMMARY"):
        with Path(path).open("a", encoding="utf-8", errors="replace") as file:
            file.write(text)


def _duel_report(directory: Path) -> Report | None:
    path = directory / _DUEL_RESULTS
    return build_duel(read_duel(path)) if path.exists() else None


def _work_report(directory: Path) -> Report | None:
    path = directory / WORK_DATA
    if not path.exists():
        return None
    return build_work(msgspec.json.decode(path.read_bytes(), type=WorkReport))


def _worst(codes: Iterable[int]) -> int:
    """Return the worst code: red before an error, and that before undecided, as in one session.

    That no test was selected counts only if none was in either step.
    """
    return min(codes, key=lambda code: _WORST_FIRST.index(code) if code in _WORST_FIRST else 3)
