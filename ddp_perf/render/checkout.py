"""The files that a report names: where they lie, and their pages at GitHub or GitLab."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from ddp_perf.core.secret import public_address
from ddp_perf.core.work import Site


class Checkout(NamedTuple):
    """The directories that files are imported from, and the repository that they lie in."""

    roots: Sequence[str | Path] = (".",)
    repository: str | Path = "."
    pages: str = ""  # the address of its files at the measured commit; empty: it has none

    @classmethod
    def of_job(
        cls,
        roots: Sequence[str],
        root: Path,
        environ: Mapping[str, str],
        commit: str | None = None,
    ) -> Checkout:
        """Return the checkout of a CI job; elsewhere ``root`` is the repository.

        ``commit`` is the one that is checked out. None: no file has a page.
        """
        names = ("GITHUB_WORKSPACE", "CI_PROJECT_DIR")
        repository = next((environ[name] for name in names if name in environ), root)
        pages = "" if commit is None else _pages(environ, commit)
        return cls(roots, repository, pages)

    def path(self, file: str) -> str:
        """Return the file's path from the root of the repository; as it is if it is not there."""
        return self._own(file) or file

    def page(self, site: Site) -> str | None:
        """Return the address of a line at the measured commit, or None if it has none."""
        path = self._own(site.file)
        return f"{self.pages}{quote(path)}#L{site.line}" if self.pages and path else None

    def _own(self, file: str) -> str | None:
        repository = Path(self.repository).resolve()
        for root in self.roots:
            path = (Path(root) / file).resolve()
            if path.is_file() and path.is_relative_to(repository):
                return path.relative_to(repository).as_posix()
        return None


CHECKOUT = Checkout()  # of a command that is run in the repository


def _pages(environ: Mapping[str, str], commit: str) -> str:
    if "GITHUB_REPOSITORY" in environ:
        server = public_address(environ.get("GITHUB_SERVER_URL", "https://github.com"))
        return f"{server}/{environ['GITHUB_REPOSITORY']}/blob/{commit}/"
    if "CI_PROJECT_URL" in environ:
        return f"{public_address(environ['CI_PROJECT_URL'])}/-/blob/{commit}/"
    return ""


def artifacts_page(job: str) -> str:
    """Return the page of a CI job that has its artifacts: at GitLab one of its own."""
    return f"{job}/artifacts/browse" if "/-/jobs/" in job else job
