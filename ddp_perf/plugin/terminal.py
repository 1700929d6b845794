"""The end of a pytest session: tables in the summary, the next command, and results on disk."""

from __future__ import annotations

import collections
import re
from collections.abc import Generator, Iterable, Iterator, Sequence

import pytest

from ddp_perf.core.verdict import Outcome
from ddp_perf.plugin.exit_code import ARRIVED, set_exit_code
from ddp_perf.plugin.items import counting_command, in_xdist_worker
from ddp_perf.plugin.session import SESSION, DdpSession
from ddp_perf.render.model import NextStep, Status
from ddp_perf.render.units import counted
from ddp_perf.report.next_steps.session import after_session
from ddp_perf.report.next_steps.work import after_work
from ddp_perf.session.result import SuiteResult
from ddp_perf.work.values import CountedCase

# The end of a pytest session: tables in the summary, and results on disk.


_REFUSED = (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERNAL_ERROR)
_COMPLETE = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, object, object]:
    """Write our files when other plugins have written theirs, also if a disk is full.

    pytest would end by a traceback, without a table, and with the exit code of a red session; so it
    would by Ctrl-C, since the tests have ended.
    """
    ddp = session.config.stash.get(SESSION, None)
    result: object = None
    try:
        result = yield
    except OSError as error:
        if ddp is None:
            raise
        what = error.filename or "a file of another plugin"
        ddp.files.other_error = f"{what} cannot be written: {error.strerror}"
    if in_xdist_worker(session.config):  # only the controller writes files
        if ddp is not None:
            ddp.work.close()
        return result
    arrived = session.config.stash[ARRIVED]
    if ddp is not None and not session.config.option.collectonly:
        began = session.exitstatus not in _REFUSED  # else the earlier files stay
        try:
            ddp.close(began=began, counted=list(arrived.counted.values()))
        except KeyboardInterrupt:
            ddp.files.other_error = "Ctrl-C ended the session before all its files were written"
            session.exitstatus = pytest.ExitCode.INTERRUPTED
        if session.exitstatus in _COMPLETE:  # a session that was interrupted is measured again
            ddp.files.notify()
    set_exit_code(session, undecided=arrived.undecided)
    return result


@pytest.hookimpl(trylast=True)  # below the tables of other plugins
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter,
    exitstatus: int | pytest.ExitCode,
    config: pytest.Config,
) -> None:
    # Imported here: rich is slow to import, and collection does not need it.
    from ddp_perf.plugin.against.session import show_duel
    from ddp_perf.render.tables import wrapped
    from ddp_perf.render.terminal import report_text
    from ddp_perf.report.case_text import false_alarm_line
    from ddp_perf.report.commands.unjudged import strict_lines
    from ddp_perf.report.session_report import build_suite
    from ddp_perf.report.suite_notes import headline

    ddp = config.stash.get(SESSION, None)
    if ddp is None:
        return
    width, verbosity = terminalreporter._tw.fullwidth, config.get_verbosity()
    for result in ddp.results.values():
        if not result.summaries:
            continue
        terminalreporter.section(headline(result))
        whole, rate = verbosity > 0, ddp.options.false_alarm_rate
        text = report_text(build_suite(result, each=whole), width, whole=whole)
        below = [false_alarm_line(rate, result.alpha)] if whole else []
        below += strict_lines(result) if ddp.options.strict else []
        # Line by line: pytest escapes the breaks of a text that it cannot encode.
        for line in (*text.splitlines(), *wrapped(below, width)):
            terminalreporter.write_line(line)
        if verbosity > 1:
            _write_summaries(terminalreporter, result)
    counted = config.stash[ARRIVED].counted
    for suite, cases in by_suite(counted.values()).items():
        terminalreporter.section(f"work of {suite}")
        for line in suite_lines(cases, width):
            terminalreporter.write_line(line)
    if ddp.against is not None:
        show_duel(terminalreporter, ddp.against)
    measured = ddp.results or (ddp.against is not None and ddp.against.duel is not None)
    if not measured and (reason := _why_nothing(terminalreporter, "perf")):
        terminalreporter.write_line(f"ddp: nothing was measured: {reason}")
    if not counted and (reason := _why_nothing(terminalreporter, "work")):
        terminalreporter.write_line(f"ddp: nothing was counted: {reason}")
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and _lacks_suites(config, ddp):
        terminalreporter.write_line(
            f"ddp: there is no suite file in {ddp.options.config_directory}; `ddp-perf init` writes"
            " an example with its tests"
        )
    if ddp.end.interruption:
        terminalreporter.write_line(f"ddp: {ddp.end.interruption}", red=True)
    if summary := ddp.files.history.summary():
        terminalreporter.write_line(summary)
    for line in ddp.files.notifier.lines:
        terminalreporter.write_line(line)
    audits = [
        ddp.end.audit_line or "",
        *ddp.files.history.audit_lines(list(ddp.results.values())),
    ]
    for line in wrapped([line for line in audits if line], width):
        terminalreporter.write_line(line)
    for problem in ddp.errors:
        terminalreporter.write_line(problem, red=True)
    for line in ddp.lines:
        terminalreporter.write_line(line)


def _write_summaries(terminalreporter: pytest.TerminalReporter, result: SuiteResult) -> None:
    """Write where the ranks of each measured case ran, and the case's summary block."""
    from ddp_perf.report.case_text import case_summary

    terminalreporter.section(f"each case of {result.suite}")
    measured = [case_id for case_id in result.measurements if result.summaries.get(case_id)]
    key = result.environment.accelerator_key
    for case_id in measured:
        about = case_summary(result.measurements[case_id], result.summaries[case_id], key)
        for line in ["", case_id, *about.splitlines()]:
            terminalreporter.write_line(line)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Write the next command as the last line: below pytest's own summary, where a reader looks."""
    ddp = config.stash.get(SESSION, None)
    terminal = config.pluginmanager.getplugin("terminalreporter")
    if ddp is None or terminal is None:
        return
    if step := _next_step(config, ddp):
        for line in str(step).splitlines():
            terminal.write_line(line)


def _next_step(config: pytest.Config, ddp: DdpSession) -> NextStep | None:
    """Return the one next command: red counts come before what was measured, and that before rest.

    Red counts are certain, and may be the cause of what was measured.
    """
    from ddp_perf.report.work_rows import work_report

    cases = list(config.stash[ARRIVED].counted.values())
    counts = after_work(cases, counting_command(config))
    if work_report(cases, {}).status is Status.RED:
        return counts
    return after_session(list(ddp.results.values())) or counts


def _lacks_suites(config: pytest.Config, ddp: DdpSession) -> bool:
    """Return whether -m asks for tests of suites in a project without any suite."""
    return not ddp.cases and bool(re.search(r"(?<!not )\b(perf|work)\b", config.option.markexpr))


def _why_nothing(terminalreporter: pytest.TerminalReporter, marker: str) -> str | None:
    """Return why the items with this marker gave nothing, or None if there are no such items."""
    reports = [
        report
        for category in ("skipped", "error")
        for report in terminalreporter.getreports(category)
        if isinstance(report, pytest.TestReport) and marker in report.keywords
    ]
    if not reports:
        return None
    reasons = sorted({_reason(report) for report in reports})
    return f"{len(reports)} items, {reasons[0]}" + (" …" if len(reasons) > 1 else "")


def _reason(report: pytest.TestReport) -> str:
    """Return the message that skipped or failed the item's set-up, without file and line."""
    detail = report.longrepr
    text = detail[2] if isinstance(detail, tuple) else str(detail)
    return text.removeprefix("Skipped: ").splitlines()[0]


# The terminal's table of counted cases: a row for each case, suite by suite.


def by_suite(cases: Iterable[CountedCase]) -> dict[str, list[CountedCase]]:
    """Return the cases of each suite, in an order that does not depend on who counted first."""
    suites: dict[str, list[CountedCase]] = collections.defaultdict(list)
    for case in sorted(cases, key=lambda one: one.case.key):
        suites[case.case.suite].append(case)
    return dict(suites)


def suite_lines(cases: Sequence[CountedCase], width: int) -> list[str]:
    """Return the table of a suite, and a line for what was stored and what got less."""
    # Imported here: rich is slow to import, and collection does not need it.
    from ddp_perf.render.terminal import text_of
    from ddp_perf.report.work_rows import work_report, work_table

    table = work_table(work_report(cases, {}).rows)
    return text_of([table, *_notes(cases)], width).splitlines()


def _notes(cases: Sequence[CountedCase]) -> Iterator[str]:
    stored = collections.Counter(one.saved for one in cases if one.saved is not None)
    for file, number in sorted(stored.items()):
        yield f"stored in {file}: {counted(number, 'case')}"
    less = [one for one in cases if _outcome(one) is Outcome.IMPROVEMENT and one.saved is None]
    if less:
        yield (
            f"{counted(len(less), 'case')} of less work: more work than now is red only from"
            " --save-baseline=accept on"
        )
    workloads = [one for one in cases if one.case.script is None]  # a script always computes
    computed = [one.case.id for one in workloads if one.work is not None and one.work.computed]
    if computed:
        yield f"counted with values computed, which the step depends on: {', '.join(computed)}"


def _outcome(one: CountedCase) -> Outcome | None:
    return None if one.verdict is None else one.verdict.outcome
