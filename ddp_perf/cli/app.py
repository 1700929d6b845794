"""The command ``ddp-perf``: everything that needs no pytest session."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from typing import Annotated, Any

import typer
import typer.core

from ddp_perf.cli.baseline import app as baseline
from ddp_perf.cli.bisect import bisect
from ddp_perf.cli.command import CommandGroup
from ddp_perf.cli.duel import duel
from ddp_perf.cli.export import export
from ddp_perf.cli.history import app as history
from ddp_perf.cli.init import init
from ddp_perf.cli.inspect import audit, doctor, trace
from ddp_perf.cli.predict import advise_training, predict
from ddp_perf.cli.pull_request import pr
from ddp_perf.cli.results import compare, explain, judge, report
from ddp_perf.cli.selftest import selftest
from ddp_perf.cli.site import site
from ddp_perf.cli.sweep import sweep
from ddp_perf.cli.try_script import ScriptCommand, try_script

app = typer.Typer(
    cls=CommandGroup,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
# Each command by its panel of --help, with a line that a terminal of 80 columns does not cut off.
_PANELS: dict[str, dict[str, tuple[Callable[..., Any] | typer.Typer, str]]] = {
    "Most used": {
        "init": (init, "Write the tests, a suite and a workload of a project"),
        "try": (try_script, "Measure a training script as it is, in one short run"),
        "duel": (duel, "Measure two versions in alternation, here and now"),
        "pr": (pr, "Count and measure a branch beside its base, for one comment"),
        "bisect": (bisect, "Find the commit or the package that made a case slower"),
        "explain": (explain, "Show where the time of a step goes, and why it changed"),
        "doctor": (doctor, "Check this machine before it measures"),
    },
    "Sessions and baselines": {
        "report": (report, "Write the page of a session, and its files"),
        "compare": (compare, "Judge results files by results of older code"),
        "judge": (judge, "Judge results files by the stored baselines"),
        "baseline": (baseline, "Show and store baselines; acknowledge a regression"),
        "history": (history, "Show each case over its sessions"),
        "site": (site, "Write static pages of all sessions"),
        "export": (export, "Write sessions in the format of another tool"),
    },
    "Predict and choose": {
        "predict": (predict, "Predict step times at more ranks"),
        "advise": (advise_training, "Choose how to train a model on given machines"),
        "sweep": (sweep, "Find the best setting of a case"),
    },
    "Checks and traces": {
        "selftest": (selftest, "Measure what the gate detects on this machine"),
        "audit": (audit, "Check the figures of files by arithmetic"),
        "trace": (trace, "Analyse traces of torch.profiler"),
    },
}


def _add_commands() -> None:
    for panel, commands in _PANELS.items():
        for name, (command, line) in commands.items():
            if isinstance(command, typer.Typer):
                app.add_typer(command, name=name, short_help=line, rich_help_panel=panel)
                continue
            kind = ScriptCommand if command is try_script else typer.core.TyperCommand
            passed_on = {"ignore_unknown_options": command is pr}  # to pytest
            add = app.command(
                name,
                cls=kind,
                short_help=line,
                rich_help_panel=panel,
                context_settings=passed_on,
            )
            add(command)


_add_commands()


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ddp-perf {metadata.version('ddp-perf')}")
        raise typer.Exit


@app.callback()
def ddp_perf(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Find performance regressions of data-parallel training, outside pytest."""
