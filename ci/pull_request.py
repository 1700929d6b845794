"""The gate of a pull request against its base: counts, then a duel; see ci/pr.

It is a program of its own because a shell that waits for two sessions passes no signal on.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from ddp_perf.baselines.save import without_saving
from ddp_perf.core.case import Tier
from ddp_perf.errors import ConfigError, ExitCode, GpuError, SideError
from ddp_perf.render.units import parse_duration
from ddp_perf.system.capacity import tier_of
from ddp_perf.system.git import merge_base
from ddp_perf.system.gpu.gpus import find_gpus

OUT = Path("artifacts/pr")
BUDGETS_S: dict[Tier, float] = {"cpu": 300.0, "gpu": 600.0}
TESTS = ("tests/work", "tests/correctness/test_ddp.py", "tests/correctness/test_fsdp.py")
AT_ONCE = ("-m", "not perf", "-n", "auto", "--dist", "worksteal")
WORST_FIRST = (
    ExitCode.TERMINATED,
    ExitCode.INTERRUPTED,
    ExitCode.RED,
    ExitCode.ERROR,
    ExitCode.USAGE,
    ExitCode.UNDECIDED,
    ExitCode.GREEN,
    ExitCode.NO_TESTS,
)
# Those of a session that ran all of its tests, and what the comment calls them.
RESULTS: dict[int, str] = {
    ExitCode.GREEN: "green",
    ExitCode.RED: "red",
    ExitCode.NO_TESTS: "no test was selected",
    ExitCode.UNDECIDED: "undecided",
}
MOST = 65_000  # characters of a comment: GitHub refuses more than 65,536


class Sessions:
    """Strict pytest sessions, one after the other. SIGTERM ends the one that runs."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._is_terminated = False
        signal.signal(signal.SIGTERM, self._end)
        # A terminal sends Ctrl-C to the session, too, which ends by it.
        signal.signal(signal.SIGINT, lambda *_: None)

    def run(self, arguments: Sequence[str], *, advised: Sequence[str]) -> int:
        """Run a session, and return its exit code. Its last line advises a form of ``advised``."""
        if self._is_terminated:
            return ExitCode.TERMINATED
        self._process = subprocess.Popen(
            ["pytest", *arguments, "--ddp-strict", f"--ddp-report={OUT}"],
            env={**os.environ, "DDP_PERF_COMMAND": shlex.join([".venv/bin/pytest", *advised])},
        )
        code = self._process.wait()
        return 128 - code if code < 0 else code

    def _end(self, *_: object) -> None:
        self._is_terminated = True
        if self._process is not None:
            self._process.terminate()


def main(arguments: Sequence[str]) -> int:
    """Run both steps, write the comment, and return the worst exit code."""
    parser = argparse.ArgumentParser(prog="ci/pr", allow_abbrev=False, add_help=False)
    parser.add_argument("--base")
    parser.add_argument("--tier", choices=get_args(Tier))
    parser.add_argument("--budget", type=_budget)
    parser.add_argument("--ddp-reason")
    try:
        options, others = parser.parse_known_args(arguments)
        base = merge_base(Path.cwd(), options.base)
        machine = find_gpus()
        tier: Tier = options.tier or tier_of(machine, meant="--tier cpu")
    except SystemExit:  # argparse has written why
        return ExitCode.USAGE
    except (SideError, GpuError) as error:
        print(f"ci/pr: {error}", file=sys.stderr)
        return ExitCode.USAGE if isinstance(error, SideError) else ExitCode.ERROR
    OUT.mkdir(parents=True, exist_ok=True)
    for name in ("work.md", "duel.md", "comment.md"):
        (OUT / name).unlink(missing_ok=True)  # of an earlier run
    sessions = Sessions()
    reason = [] if options.ddp_reason is None else [f"--ddp-reason={options.ddp_reason}"]
    counting = [*TESTS, *AT_ONCE, f"--junitxml={OUT}/junit.xml", *others, *reason]
    codes = [sessions.run(counting, advised=["-m", "work", "-n", "auto", *others])]
    if codes[0] in RESULTS:
        duel = ["-m", "gpu" if tier == "gpu" else "perf and cpu", f"--ddp-against={base}"]
        duel += [f"--ddp-budget={options.budget or BUDGETS_S[tier]:g}s", "--ddp-touched"]
        if tier == "gpu":  # a case for more GPUs than there are is excused
            duel.append(f"--ddp-expect-devices={len(machine.gpus)}")
        duel += without_saving(others)  # what is stored is counts
        codes.append(
            sessions.run(["tests/perf", *duel, f"--junitxml={OUT}/junit-duel.xml"], advised=duel)
        )
    (OUT / "comment.md").write_text(comment(OUT, codes), encoding="utf-8")
    return worst(codes)


def _budget(text: str) -> float:
    """Return the seconds, which pytest would refuse only after the counts."""
    try:
        return parse_duration(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def worst(codes: Sequence[int]) -> int:
    """Return the worst code: red before an error, and that before undecided, as in one session.

    That no test was selected counts only if none was in either step.
    """
    return min(codes, key=lambda code: WORST_FIRST.index(code) if code in WORST_FIRST else 3)


def comment(directory: Path, codes: Sequence[int]) -> str:
    """Return the comment: how both steps ended, the duel, and the counts in a fold."""
    from ddp_perf.report.directory import DUEL_MARKER  # it is slow to import

    steps = zip(("counts and correctness", "duel"), codes, strict=False)
    ends = [f"{step}: {RESULTS.get(code, f'exit code {code}')}" for step, code in steps]
    duel, work = (_text(directory / name) for name in ("duel.md", "work.md"))
    lines = [DUEL_MARKER, f"{'; '.join(ends)}\n", duel.removeprefix(DUEL_MARKER).lstrip()]
    if not duel:
        lines.append("There is no duel: see the log of the job.\n")
    if work:
        left = MOST - sum(map(len, lines))
        cut = "" if len(work) <= left else "\n\n… the rest did not fit: see work.html\n"
        heading, _, rest = work[:left].partition("\n")
        title = heading.lstrip("# ")
        lines.append(f"<details><summary>{title}</summary>\n{rest}{cut}\n</details>\n")
    return "\n".join(lines)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
