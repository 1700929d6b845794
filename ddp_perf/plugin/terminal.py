"""The end of a pytest session: tables in the summary, and results on disk."""

from __future__ import annotations

import re

import pytest

from ddp_perf.plugin.items import in_xdist_worker
from ddp_perf.plugin.session import SESSION, DdpSession
from ddp_perf.report.next_step import next_step
from ddp_perf.session.result import SuiteResult

_REFUSED = (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERNAL_ERROR)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    ddp = session.config.stash.get(SESSION, None)
    if ddp is None or in_xdist_worker(session.config):
        return  # under xdist only the controller writes files
    if session.config.option.collectonly:
        return  # nothing was to be measured: the files of an earlier session stay
    ddp.close(began=session.exitstatus not in _REFUSED)
    if ddp.errors and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter,
    exitstatus: int | pytest.ExitCode,
    config: pytest.Config,
) -> None:
    # Imported here: rich is slow to import, and collection does not need it.
    from ddp_perf.render.tables import wrapped
    from ddp_perf.report.terminal.amdahl import amdahl_lines
    from ddp_perf.report.terminal.gains import gain_lines
    from ddp_perf.report.terminal.profiles import profiles_text
    from ddp_perf.report.terminal.step_terms import decomposition_table
    from ddp_perf.report.terminal.strict import strict_lines
    from ddp_perf.report.terminal.table import forming_lines, headline, suite_table
    from ddp_perf.report.terminal.text import false_alarm_line

    ddp = config.stash.get(SESSION, None)
    if ddp is None:
        return
    width, quiet = terminalreporter._tw.fullwidth, config.get_verbosity() < 0
    for result in ddp.results.values():
        if not result.summaries:
            continue
        terminalreporter.section(headline(result))
        texts = [suite_table(result, width)]
        if not quiet and (table := decomposition_table(result, width)) is not None:
            texts.append(f"\n{table}\n")
        texts += gain_lines(result, width)
        if result.profiles:
            texts.append(profiles_text(result, width))
        texts += wrapped(amdahl_lines(result), width)
        texts += wrapped(forming_lines(result), width)
        texts += wrapped(strict_lines(result) if ddp.options.strict else [], width)
        for line in "\n".join(texts).splitlines():  # pytest escapes "\n" of a line it cannot encode
            terminalreporter.write_line(line)
        terminalreporter.write_line(false_alarm_line(ddp.options.false_alarm_rate, result.alpha))
        if ddp.options.summary:
            _write_summaries(terminalreporter, result)
    if not ddp.results and (reason := _why_nothing(terminalreporter)):
        terminalreporter.write_line(f"ddp: nothing was measured: {reason}")
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and _lacks_suites(config, ddp):
        terminalreporter.write_line(
            f"ddp: there is no suite file in {ddp.options.config_directory}; `ddp-perf init` writes"
            " an example with its tests"
        )
    if ddp.interruption:
        terminalreporter.write_line(f"ddp: {ddp.interruption}", red=True)
    if summary := ddp.history.summary():
        terminalreporter.write_line(summary)
    for problem in ddp.errors:
        terminalreporter.write_line(problem, red=True)
    for line in ddp.lines:
        terminalreporter.write_line(line)


def _write_summaries(terminalreporter: pytest.TerminalReporter, result: SuiteResult) -> None:
    """Write where the ranks of each measured case ran, and the case's summary block."""
    from ddp_perf.report.terminal.text import case_summary

    terminalreporter.section(f"each case of {result.suite}")
    measured = [case_id for case_id in result.measurements if result.summaries.get(case_id)]
    for case_id in measured:
        for line in ["", case_id, *case_summary(result, case_id).splitlines()]:
            terminalreporter.write_line(line)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Write the next command as the last line: below pytest's own summary, where a reader looks."""
    ddp = config.stash.get(SESSION, None)
    terminal = config.pluginmanager.getplugin("terminalreporter")
    if ddp is None or terminal is None:
        return
    if step := next_step(list(ddp.results.values())):
        for line in str(step).splitlines():
            terminal.write_line(line)


def _lacks_suites(config: pytest.Config, ddp: DdpSession) -> bool:
    """Return whether -m asks for performance tests in a project without any suite."""
    return not ddp.cases and bool(re.search(r"(?<!not )\bperf\b", config.option.markexpr))


def _why_nothing(terminalreporter: pytest.TerminalReporter) -> str | None:
    """Return why the items of the suite measured nothing, or None if there are no such items."""
    reports = [*terminalreporter.getreports("skipped"), *terminalreporter.getreports("error")]
    reports = [r for r in reports if isinstance(r, pytest.TestReport) and "perf" in r.keywords]
    if not reports:
        return None
    reasons = sorted({_reason(report) for report in reports})
    return f"{len(reports)} items, {reasons[0]}" + (" …" if len(reasons) > 1 else "")


def _reason(report: pytest.TestReport) -> str:
    """Return the message that skipped or failed the item's set-up, without file and line."""
    detail = report.longrepr
    text = detail[2] if isinstance(detail, tuple) else str(detail)
    return text.removeprefix("Skipped: ").splitlines()[0]
