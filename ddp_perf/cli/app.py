"""The command ``ddp-perf``: everything that needs no pytest session."""

from __future__ import annotations

from importlib import metadata
from typing import Annotated

import typer

from ddp_perf.cli.advise import advise_training
from ddp_perf.cli.audit import audit
from ddp_perf.cli.baseline import app as baseline
from ddp_perf.cli.bisect import bisect
from ddp_perf.cli.compare import compare
from ddp_perf.cli.doctor import doctor
from ddp_perf.cli.duel import duel
from ddp_perf.cli.explain import explain
from ddp_perf.cli.group import CommandGroup
from ddp_perf.cli.history import app as history
from ddp_perf.cli.history import bisect_range
from ddp_perf.cli.init import init
from ddp_perf.cli.judge import judge
from ddp_perf.cli.plan import plan_fleet
from ddp_perf.cli.predict import predict
from ddp_perf.cli.report import report
from ddp_perf.cli.selftest import selftest
from ddp_perf.cli.sweep import sweep
from ddp_perf.cli.trace import trace
from ddp_perf.cli.try_script import ScriptCommand, try_script

app = typer.Typer(
    cls=CommandGroup,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command()(init)
app.command("try", cls=ScriptCommand)(try_script)
app.command()(compare)
app.command()(judge)
app.command()(audit)
app.command()(doctor)
app.command()(explain)
app.command()(report)
app.command()(selftest)
app.command()(duel)
app.command()(predict)
app.command("advise")(advise_training)
app.command("plan")(plan_fleet)
app.command()(trace)
app.command()(sweep)
app.add_typer(baseline, name="baseline")
app.add_typer(history, name="history")
app.command()(bisect_range)
app.command()(bisect)


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
