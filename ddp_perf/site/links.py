"""The links of a site: to the page of a case, and to the commit and the CI job of a session."""

from __future__ import annotations

import re

from markupsafe import Markup

from ddp_perf.history.records import SessionInfo
from ddp_perf.render.units import ABSENT
from ddp_perf.site.views import CaseView

CASES = "cases"  # the directory of the cases' pages, in that of the others

_LENGTH = 10  # digits of a commit that a reader sees
# The repository's address is a part of the job's: of GitHub, and of GitLab.
_REPOSITORY = re.compile(r"(https?://.+?)(?:/actions/runs/|(/-)/jobs/)")


def case_link(view: CaseView, text: str = "") -> str:
    """Return a link to the page of a case, from a page beside the overview."""
    address = f"{CASES}/{view.file}"
    return Markup('<a href="{}">{}</a>').format(address, text or view.case.case_id)


def commit_link(info: SessionInfo) -> str:
    """Return a session's commit, with a link if its CI job shows where the repository is."""
    commit = info.environment.commit
    if commit is None:
        return "unknown"
    pages = _pages(info)
    whole = commit.removesuffix("+")  # with + if files differed from it
    return _linked(f"{pages}/commit/{whole}" if pages else "", _short(commit))


def commits_link(before: SessionInfo, after: SessionInfo) -> str:
    """Return the commits after one session up to another one."""
    first, last = before.environment.commit, after.environment.commit
    if first is None or last is None:
        return "unknown"
    if first == last:
        return f"the same: {_short(first)}"
    pages = _pages(after)
    range_ = f"{first.removesuffix('+')}...{last.removesuffix('+')}"
    return _linked(f"{pages}/compare/{range_}" if pages else "", f"{_short(first)}…{_short(last)}")


def job_link(info: SessionInfo) -> str:
    """Return a link to the CI job that measured a session, where its report is."""
    return _linked(info.job, "job") if info.job else ABSENT


def _pages(info: SessionInfo) -> str:
    found = _REPOSITORY.match(info.job)
    return f"{found[1]}{found[2] or ''}" if found else ""


def _short(commit: str) -> str:
    return f"{commit.removesuffix('+')[:_LENGTH]}{'+' if commit.endswith('+') else ''}"


def _linked(address: str, text: str) -> str:
    """Return the text, as a link if the address is one of the web: it may come from a file."""
    if not address.startswith(("https://", "http://")):
        return text
    return Markup('<a href="{}">{}</a>').format(address, text)
