"""Command-line and ini options. Each is parsed to its type, or refused in one line."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec
import pytest

from ddp_perf.baselines.save import SaveMode, check_reason
from ddp_perf.config.cluster_file import check_no_commands, read_cluster_file
from ddp_perf.config.loading import Overrides
from ddp_perf.core.environment import LAUNCHERS, Cluster
from ddp_perf.core.injection import KINDS, Injection
from ddp_perf.core.subject import DATA_FOLDER
from ddp_perf.core.verdict import FALSE_ALARM_RATE
from ddp_perf.errors import BaselineError, ConfigError
from ddp_perf.plugin.option_values import (
    REPLAY,
    Webhook,
    parse_assignment,
    parse_count,
    parse_counts,
    parse_database,
    parse_launcher,
    parse_machine,
    parse_rate,
    parse_save_mode,
    parse_slow_down,
    parse_time,
    parse_webhook,
    parse_whole,
)
from ddp_perf.session.measure.rounds import SessionOptions
from ddp_perf.system.files import check_replaceable

# The options of a duel, and those that make no sense with it.


# Options that must not be given, and why, or what to use instead.
_REFUSED = {
    "--save-baseline": "a duel stores nothing; leave one of them out",
    "--ddp-inject": "a duel slows no side on purpose; leave one of them out",
    "--ddp-audit": "a duel is judged by no baseline; leave one of them out",
    "--ddp-settle": "a duel decides by itself; leave one of them out",
    "--ddp-profile": "a duel traces nothing; leave one of them out",
    "--ddp-history": "a duel is no session of a history; leave one of them out",
    "--ddp-notify": "a duel is no session of a history; leave one of them out",
    "--ddp-machine": "a duel reads no baseline, so that it needs no pool; leave one of them out",
    "--ddp-launches": "a duel ends when it is decided; bound it with --ddp-budget",
    "--ddp-cluster": "a duel is of one machine; leave one of them out",
    "--ddp-no-user-code": "a side is code of the user; leave one of them out",
}
_FORKSERVER = "forkserver"


class Against(msgspec.Struct, frozen=True, kw_only=True):
    """The side that the tree is compared with, and the time for it."""

    side: str  # as typed
    budget_s: float | None  # None: that of the tier
    touched_only: bool  # leave out the cases that no changed file can touch


def _add_against(group: pytest.OptionGroup) -> None:
    group.addoption(
        "--ddp-against",
        metavar="SIDE",
        help="judge each performance test by a duel of SIDE against the tree as it is, without"
        " baselines: launches of both alternate until it is decided. SIDE is a git revision,"
        " env:NAME=VALUE, python:PATH, torch==VERSION, or 'command: … {command}'",
    )
    group.addoption(
        "--ddp-touched",
        action="store_true",
        help="with --ddp-against REVISION: skip each case that no file that changed since then can"
        " touch, uncommitted changes included",
    )


def read_against(config: pytest.Config) -> Against | None:
    """Return the options of the duel, or None without one. Raises UsageError."""
    side, budget_s = config.getoption("ddp_against"), config.getoption("ddp_budget")
    touched_only = config.getoption("ddp_touched")
    if side is None:
        if touched_only:
            raise pytest.UsageError("--ddp-touched: needs --ddp-against SIDE")
        return None
    if budget_s == 0:
        raise pytest.UsageError(
            "--ddp-budget with --ddp-against: 0 is too little for any launch;"
            " give the duel a time, as in --ddp-budget=3m"
        )
    if not side.strip():
        raise pytest.UsageError("--ddp-against: name a side, as in --ddp-against origin/main")
    for problem in _refused(config):
        raise pytest.UsageError(problem)
    return Against(
        side=side,
        budget_s=budget_s,
        touched_only=touched_only,
    )


def _refused(config: pytest.Config) -> Iterator[str]:
    """Yield a line for each option that was given and makes no sense with a duel."""
    launcher = config.getoption("ddp_launcher")
    if launcher not in (None, _FORKSERVER):
        yield f"--ddp-against: a duel launches by {_FORKSERVER}; leave --ddp-launcher out"
    if config.getoption("numprocesses", None):
        yield "-n with --ddp-against: timed tests cannot run beside other tests; add -n0"
    for option, why in _REFUSED.items():
        if config.getoption(option):
            yield f"{option} with --ddp-against: {why}"


# The options about machines: what starts ranks, and the file that describes a cluster.


def _add_machines(group: pytest.OptionGroup) -> None:
    group.addoption(
        "--ddp-launcher",
        type=parse_launcher,
        metavar="NAME",
        help=f"what starts the ranks, instead of the suite's: {', '.join(LAUNCHERS)} (default:"
        " forkserver, on this machine); or replay:FILE, which launches nothing: the tests get the"
        " session of a results file, as if on its machine",
    )
    group.addoption(
        "--ddp-cluster",
        type=Path,
        metavar="FILE",
        help="YAML file that describes several nodes, and how ranks are started on them"
        " (docs/options.md#the-cluster-file)",
    )
    group.addoption(
        "--ddp-no-user-code",
        action="store_true",
        help="refuse suites with script:, env: or a workload of their own, and commands in cluster"
        " files",
    )
    group.addoption(
        "--ddp-machine",
        type=parse_machine,
        metavar="NAME",
        help="name of a pool of like hosts that share a baseline, for jobs of the CPU tier whose"
        " host changes (without a name, each host has its own baseline)",
    )
    group.addoption(
        "--ddp-expect-devices",
        type=parse_whole,
        metavar="N",
        help="fail unless exactly N CUDA devices are visible; without this option, a case that"
        " needs a lost GPU is skipped",
    )


def read_cluster(config: pytest.Config) -> Cluster:
    """Return the cluster of the file, or this machine alone. Raises UsageError."""
    path: Path | None = config.getoption("ddp_cluster")
    if path is None:
        return Cluster()
    try:
        cluster = read_cluster_file(path, launcher=config.getoption("ddp_launcher"))
        if config.getoption("ddp_no_user_code"):
            check_no_commands(path, cluster)
        return cluster
    except ConfigError as error:
        raise pytest.UsageError(f"--ddp-cluster: {error}") from None


# A misspelt option: pytest's error names the option of this plugin that was probably meant.


_PREFIXES = ("--ddp", "--save")  # of options that no other plugin is likely to have


def suggest_options(
    parser: pytest.Parser, known: Iterable[str], pluginmanager: pytest.PytestPluginManager
) -> None:
    """Let pytest's error on the command line name the nearest option of each misspelt one.

    pytest writes `Parser.extra_info` below such an error, and refuses misspelt options after the
    last plugin has added its own.
    """
    config = pluginmanager.get_plugin("pytestconfig")
    for argument in config.invocation_params.args if config else ():
        name = str(argument).partition("=")[0]
        nearest = _nearest(name, known) if name.startswith(_PREFIXES) else None
        if nearest not in (name, None):
            parser.extra_info[name] = f"did you mean {nearest}?"


def _nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the nearest option, or None if none is near. All begin alike, which counts nothing."""
    bare = {_bare(option): option for option in known}
    matches = difflib.get_close_matches(_bare(name), bare, n=1)
    if not matches:
        matches = [option for option in bare if _bare(name) and option.startswith(_bare(name))]
    return bare[matches[0]] if len(matches) == 1 else None


def _bare(name: str) -> str:
    """Return ``--ddp-world-sizes`` as ``worldsizes``."""
    return name.replace("-", "").replace("_", "").removeprefix("ddp")


# Command-line and ini options. Each is parsed to its type, or refused in one line.


_BUDGET_S = 60.0  # of further launches of a case
# Options that make no sense with a session that was measured before, and why.
_LAUNCHES_NOTHING = "a replay launches nothing; leave one of them out"
_NOT_REPLAYED = {
    "--save-baseline": "a replay stores nothing; ddp-perf judge FILE --append does",
    "--ddp-history": "a replay is no further session; ddp-perf history import FILE adds it",
    "--ddp-notify": "a replay is no further session; leave one of them out",
    "--ddp-rotate": "a recorded night has its own cases; leave one of them out",
    "--ddp-steps": _LAUNCHES_NOTHING,
    "--ddp-launches": _LAUNCHES_NOTHING,
    "--ddp-settle": _LAUNCHES_NOTHING,
    "--ddp-audit": _LAUNCHES_NOTHING,
    "--ddp-inject": _LAUNCHES_NOTHING,
    "--ddp-profile": _LAUNCHES_NOTHING,
}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one pytest session."""

    configs: tuple[Path, ...]  # suite files to run; empty: all of config_directory
    config_directory: Path
    baseline_directory: Path
    machine: str | None  # the pool of like hosts that this host is one of; None: a machine alone
    cluster: Cluster
    overrides: Overrides
    rotates: bool  # of what is not of the core, measure tonight's part
    import_paths: tuple[str, ...]  # where ranks first search for a user's workload
    json_path: Path | None
    history: str | None  # URL of the store that the session is appended to
    notify: tuple[Webhook, ...]  # what gets a message of the session's regressions
    report: Path | None  # directory
    replay: Path | None  # results file whose session is judged; None: it is measured
    strict: bool
    expect_devices: int | None
    false_alarm_rate: float
    injections: tuple[Injection, ...]
    session: SessionOptions
    audit: bool  # end the session with launches that a hidden size slows
    settle_s: float  # for the second stage of the verdicts; 0: none
    against: Against | None  # None: stored baselines judge


def add_options(
    parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager, *, used: bool
) -> None:
    """Add all options; ``used`` is False for the help of a project that does not use the suite.

    That project may have a ``--save-baseline`` of its own.
    """
    known: list[str] = []
    for title, adders in OPTION_GROUPS.items():
        group = parser.getgroup(f"ddp: {title}", f"{_TITLE}: {title}")
        for add in adders:
            if used or add is not _add_saving:
                add(group)
        known += [name for option in group.options for name in option.names()]
    suggest_options(parser, known, pluginmanager)


def _add_selection(group: pytest.OptionGroup) -> None:
    group.addoption(
        "--ddp-config",
        action="append",
        type=Path,
        default=[],
        metavar="FILE",
        help="measure this suite file instead of all of bench_configs/; may be repeated",
    )
    group.addoption(
        "--ddp-world-sizes",
        type=parse_counts,
        default=(),
        metavar="N,N",
        help="numbers of ranks, instead of the suite's",
    )
    group.addoption(
        "--ddp-batch-sizes",
        type=parse_counts,
        default=(),
        metavar="N,N",
        help="batch sizes, instead of the suite's and of its kind: per rank, or global",
    )
    for name, text in (
        ("steps", "steps of each launch, with the warm-up"),
        ("launches", "launches of each case, in new processes; more find smaller slow-downs"),
    ):
        group.addoption(f"--ddp-{name}", type=parse_count, metavar="N", help=text)
    group.addoption(
        "--ddp-env",
        action="append",
        type=parse_assignment,
        default=[],
        metavar="NAME=VALUE",
        help="environment variable of the ranks, as in NCCL_ALGO=Ring; may be repeated: each value"
        " of a name makes a case of its own, unless it only changes what is logged (NCCL_DEBUG)",
    )
    group.addoption(
        "--ddp-rotate",
        action="store_true",
        help="measure the core of bench_configs/, and a seventh of the other cases by the day of"
        " the week in UTC, whose times fail nothing (a suite without `core:`, or that --ddp-config"
        " names, is of the core as a whole)",
    )
    group.addoption(
        "--ddp-inject",
        action="append",
        type=parse_slow_down,
        default=[],
        metavar="KIND:ARG",
        help="slow the ranks on purpose, to test the gate, as in compute:5%%, straggler:1:5ms or"
        f" memory:64MB; KIND is one of {', '.join(KINDS)}; may be repeated; such a session is never"
        " stored",
    )


def _add_judging(group: pytest.OptionGroup) -> None:
    group.addoption(
        "--ddp-strict",
        action="store_true",
        help="fail a case that cannot run here, or has no baseline (--save-baseline=append begins"
        " none then), a suite if over a fifth of its cases are undecided, and a work test that has"
        " nothing to compare with; the exit code separates red (1), undecided (75) and interrupted",
    )
    group.addoption(
        "--ddp-false-alarm-rate",
        type=parse_rate,
        default=FALSE_ALARM_RATE,
        metavar="P",
        help="probability that a session in which nothing became slower has a REGRESSION (default:"
        " 0.01)",
    )
    group.addoption(
        "--ddp-budget",
        type=parse_time,
        metavar="TIME",
        help="a case that is undecided, or cannot be stored yet, gets further launches until all of"
        " them took TIME, as in 90s or 3m (default: 1m; 0: none); one that became slower gets half"
        " as much to explain why; with --ddp-against: of the whole duel (default: 3m; on GPUs 10m)",
    )
    group.addoption(
        "--ddp-settle",
        type=parse_time,
        metavar="TIME",
        help="launch the code of the stored session beside today's, for TIME at most, until what"
        " is undecided or slower is settled, and then search for the commit (default: ddp_settle of"
        " pytest.ini; 0: neither)",
    )
    group.addoption(
        "--ddp-audit",
        action="store_true",
        help="end the session with launches of one case that are slowed by a hidden size, or not at"
        " all, and keep in the history whether the gate found it; no verdict depends on it",
    )


def _add_saving(group: pytest.OptionGroup) -> None:
    group.addoption(
        "--save-baseline",
        nargs="?",
        const="missing",
        type=parse_save_mode,
        metavar="MODE",
        help="store this session; MODE is 'missing' (default: only what has no baseline yet),"
        " 'append' (a further session of each case) or 'accept' (the new level of each case,"
        " after an intended change; needs --ddp-reason). The structure of a case that has none is"
        " stored for every machine, and so are the counts of work tests",
    )


def _add_outputs(group: pytest.OptionGroup) -> None:
    group.addoption(
        "--ddp-reason", metavar="TEXT", help="why the new level of --save-baseline=accept is right"
    )
    group.addoption("--ddp-json", type=Path, metavar="FILE", help="write all measurements to FILE")
    group.addoption(
        "--ddp-history",
        type=parse_database,
        metavar="URL",
        help="append measurements and verdicts to this history, as in"
        " sqlite:///artifacts/history.sqlite or postgresql://user@host/database",
    )
    group.addoption(
        "--ddp-notify",
        action="append",
        type=parse_webhook,
        default=[],
        metavar="URL",
        help="post what this session changed in the history, if anything, to this webhook: a"
        " regression that is new, continues or has ended, each once; Slack's format for"
        " hooks.slack.com and slack+https://…, JSON for others; env:NAME is the URL in that"
        " variable, which other users of the machine cannot read; may be repeated",
    )
    group.addoption(
        "--ddp-report",
        type=Path,
        metavar="DIR",
        help="write an HTML report to DIR, its figures in the formats of other tools, and all"
        " measurements to DIR/results.json, or to the FILE of --ddp-json; of work tests: the"
        " changes and their lines",
    )
    group.addoption(
        "--ddp-profile",
        nargs="?",
        const=3,
        type=parse_count,
        metavar="STEPS",
        help="launch each case once more, and trace STEPS of its steps (default: 3)",
    )


_TITLE = "performance regression of data-parallel training"  # of the groups of pytest --help
OPTION_GROUPS: dict[str, tuple[Callable[[pytest.OptionGroup], None], ...]] = {
    "what is measured": (_add_selection,),
    "where it runs": (_add_machines,),
    "how it is judged": (_add_against, _add_judging),
    "what is stored and written": (_add_saving, _add_outputs),
}


def read_options(config: pytest.Config) -> Options:
    """Read the options and check them against each other. Raises UsageError."""
    value = config.getoption
    save_mode, reason = value("save_baseline"), value("ddp_reason")
    json_path, report = value("ddp_json"), value("ddp_report")
    _check_saving(save_mode, reason, injected=bool(value("ddp_inject")))
    against = read_against(config)
    replay = _replay(config)
    if against is not None and value("ddp_rotate"):
        raise pytest.UsageError(
            "--ddp-rotate: a duel compares what is selected; remove one of them"
        )
    if json_path is not None and not json_path.absolute().parent.is_dir():
        raise pytest.UsageError(
            f"--ddp-json: there is no directory {json_path.parent}; make it first"
        )
    if report is not None:
        _make_directory(report)
        json_path = json_path or (None if against else report / "results.json")
        _check_replaceable("--ddp-report", report / "index.html")
    if json_path is not None:
        _check_replaceable("--ddp-json", json_path)
    if replay is not None and json_path is not None and json_path.resolve() == replay.resolve():
        raise pytest.UsageError(
            f"--ddp-launcher replay:{replay}: this session would write {json_path} anew; name"
            " another --ddp-json or --ddp-report"
        )
    cluster = read_cluster(config)
    budget_s = _BUDGET_S if value("ddp_budget") is None else value("ddp_budget")
    return Options(
        configs=tuple(value("ddp_config")),
        config_directory=config.rootpath / (config.getini("ddp_configs") or "bench_configs"),
        baseline_directory=config.rootpath / (config.getini("ddp_baselines") or "baselines"),
        machine=value("ddp_machine") or _machine_of_ini(config.getini("ddp_machine")),
        cluster=cluster,
        overrides=Overrides(
            launcher=None if replay else (value("ddp_launcher") or cluster.launcher),
            ranks_per_node=cluster.ranks_per_node,
            world_sizes=value("ddp_world_sizes"),
            batch_sizes=value("ddp_batch_sizes"),
            steps=value("ddp_steps"),
            launches=value("ddp_launches"),
            env=tuple(value("ddp_env")),
            files=bool(os.environ.get(DATA_FOLDER)),
            no_user_code="--ddp-no-user-code" if value("ddp_no_user_code") else None,
        ),
        rotates=value("ddp_rotate") and not value("ddp_config"),
        import_paths=_import_paths(config),
        json_path=json_path,
        history=value("ddp_history"),
        notify=_notify(config),
        report=report,
        replay=replay,
        strict=value("ddp_strict"),
        expect_devices=value("ddp_expect_devices"),
        false_alarm_rate=value("ddp_false_alarm_rate"),
        injections=tuple(value("ddp_inject")),
        session=SessionOptions(
            budget_s=budget_s,
            explain_budget_s=budget_s / 2,
            save_mode=save_mode,
            reason=reason,
            begins=not (value("ddp_strict") and save_mode == "append"),
            profile_steps=value("ddp_profile"),
            accept_improvements=config.getini("ddp_accept_improvements") is not False,
        ),
        audit=_audit(config),
        settle_s=_settle_s(config) if replay is None else 0.0,
        against=against,
    )


def no_suite_text(options: Options) -> str:
    """Return why there is no case, and the remedy."""
    return (
        f"there is no suite file in {options.config_directory}: name one with --ddp-config, or run"
        " ddp-perf init, which writes an example"
    )


def _check_saving(save_mode: SaveMode | None, reason: str | None, *, injected: bool) -> None:
    if save_mode == "accept" and not reason:
        raise pytest.UsageError(
            '--save-baseline=accept: needs --ddp-reason "why the change is right"'
        )
    if reason and save_mode != "accept":
        raise pytest.UsageError("--ddp-reason: needs --save-baseline=accept")
    if reason:
        try:
            check_reason("--ddp-reason", reason)
        except BaselineError as error:
            raise pytest.UsageError(str(error)) from None
    if save_mode is not None and injected:
        raise pytest.UsageError(
            "--save-baseline: a session that --ddp-inject slowed is not stored; remove one of them"
        )


def _replay(config: pytest.Config) -> Path | None:
    """Return the results file to replay, if any. Raises UsageError for what needs launches."""
    launcher: str | None = config.getoption("ddp_launcher")
    if launcher is None or not launcher.startswith(REPLAY):
        return None
    for option, why in _NOT_REPLAYED.items():
        if config.getoption(option):
            raise pytest.UsageError(f"{option} with --ddp-launcher {launcher}: {why}")
    return Path(launcher.removeprefix(REPLAY))


def _audit(config: pytest.Config) -> bool:
    """Return whether the session is audited. Raises UsageError where an audit cannot be kept."""
    wanted: bool = config.getoption("ddp_audit")
    if wanted and config.getoption("ddp_history") is None:
        raise pytest.UsageError("--ddp-audit: needs --ddp-history=URL, which keeps what it finds")
    if wanted and config.getoption("ddp_inject"):
        raise pytest.UsageError(
            "--ddp-audit: it slows the ranks by a size of its own; leave --ddp-inject out"
        )
    return wanted


def _notify(config: pytest.Config) -> tuple[Webhook, ...]:
    """Return the webhooks. Raises UsageError without a history, which has what changed."""
    webhooks: list[Webhook] = config.getoption("ddp_notify")
    if webhooks and config.getoption("ddp_history") is None:
        raise pytest.UsageError("--ddp-notify: needs --ddp-history=URL, which has what changed")
    return tuple(webhooks)


def _settle_s(config: pytest.Config) -> float:
    seconds: float | None = config.getoption("ddp_settle")
    if seconds is None:
        of_ini: str | None = config.getini("ddp_settle")
        try:
            seconds = parse_time("0" if of_ini is None else of_ini)
        except argparse.ArgumentTypeError as error:
            raise pytest.UsageError(f"ddp_settle: {error}") from None
    if seconds and config.getoption("ddp_no_user_code"):
        raise pytest.UsageError(
            "--ddp-settle: --ddp-no-user-code refuses it, since it runs the code that baselines"
            " keep; leave one of them out, or give --ddp-settle=0"
        )
    return seconds


def _machine_of_ini(name: str | None) -> str | None:
    try:
        return parse_machine(name) if name else None
    except argparse.ArgumentTypeError as error:
        raise pytest.UsageError(f"ddp_machine: {error}") from None


def _make_directory(path: Path) -> None:
    """Make the directory of the report before anything is measured."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise pytest.UsageError(f"--ddp-report: {path}: {error.strerror}") from None


def _check_replaceable(option: str, path: Path) -> None:
    """Refuse a file that could not be written, before anything is measured."""
    try:
        check_replaceable(path)
    except OSError as error:
        raise pytest.UsageError(
            f"{option}: {path} cannot be written: {error.strerror}; name another path"
        ) from None


def _import_paths(config: pytest.Config) -> tuple[str, ...]:
    """Return the root, and the paths that pytest and its conftest files added to ``sys.path``.

    The interpreter's own directories are left out: ranks have their own.
    """
    own = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))
    added = [path for path in sys.path if path and not path.startswith(own)]
    return tuple(dict.fromkeys([str(config.rootpath), *added]))
