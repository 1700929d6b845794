"""The commands, options and links of README.md and docs/: each of them works as written.

The line before each `console` block states what happens to its commands. A script in ci/, and a
`pytest` command that names no file, run on the first page that has the command.

<!-- run -->                  each command must end with exit code 0
<!-- run: exit 0 or 1 -->     each command must end with one of these exit codes
<!-- run: same form -->       the last one also prints what the page shows, but for figures
<!-- not run: needs a GPU --> they are not run, for this reason
<!-- file: PATH -->           before a block of any language: its text is written to PATH
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
import typer
import yaml

from ddp_perf.bench.flags import make_parser
from ddp_perf.cli.app import app
from ddp_perf.config.loading import suite_type
from ddp_perf.config.yaml_file import read_yaml
from tests.projects import REPOSITORY
from tests.reader_project import SHORT, change_suite, make_reader_project, run

DOCS = (REPOSITORY / "docs").resolve()
PAGES = [
    *(
        REPOSITORY / name
        for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")
    ),
    *sorted((REPOSITORY / "docs").glob("*.md")),
]
NAMES = [str(page.relative_to(REPOSITORY)) for page in PAGES]
BENCH = {option for action in make_parser()._actions for option in action.option_strings}
# Options of other programs that a page names by themselves: the scripts in ci/ and benchmarks/,
# torchrun, and an alias that pytest --help does not show.
OTHER_OPTIONS = {
    *("--base", "--devices", "--fast", "--tier", "--only", "--list", "--check"),
    *("--gloo", "--nproc", "--nnodes", "--seed", "--trials", "--law"),
    *("--exclusive", "--cpu-bind", "--cpus-per-task", "--hint", "--signal", "--standalone"),
    *("--nproc-per-node", "--rdzv-endpoint", "--nodes"),
    *("--gpus-per-task", "--gpus-per-node", "--ntasks", "--output"),
    *BENCH,
}
ALIASES = {"--junitxml"}
TUTORIAL = "docs/tutorial.md"  # begins in an empty directory
MARK = re.compile(r"<!-- (run|not run|file)(?:: (.+))? -->")


class Block(NamedTuple):
    """A fenced block of a page: its place, language, text, and the comment before it."""

    line: int
    language: str
    text: str
    mark: str
    detail: str

    @property
    def commands(self) -> list[str]:
        """The commands of a console block: the lines after "$ ", continued by a backslash."""
        return re.findall(r"^\$ ((?:.*\\\n)*.*)$", self.text, re.MULTILINE)

    @property
    def shown(self) -> str:
        """The output of the last command."""
        return re.split(r"^\$ (?:.*\\\n)*.*\n", self.text, flags=re.MULTILINE)[-1]


def blocks_of(page: Path) -> list[Block]:
    lines = page.read_text(encoding="utf-8").splitlines()
    fences = [number for number, line in enumerate(lines) if line.startswith("```")]
    blocks = []
    for begin, end in zip(fences[::2], fences[1::2], strict=True):
        mark = MARK.fullmatch(lines[begin - 1])
        blocks.append(
            Block(
                line=begin + 1,
                language=lines[begin][3:],
                text="\n".join(lines[begin + 1 : end]),
                mark=mark[1] if mark else "",
                detail=(mark[2] or "") if mark else "",
            )
        )
    return blocks


RUNNABLE = [
    name
    for name, page in zip(NAMES, PAGES, strict=True)
    if any(block.mark == "run" for block in blocks_of(page))
]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return make_reader_project(tmp_path_factory.mktemp("project"))


def page_that_runs(command, name):
    """Return the page that runs a command of page ``name``.

    A script and a session are run by the first page that has them. A session that reads a file of
    the page, or writes one that the page reads, is run by that page. So is every command of the
    tutorial.
    """
    script = command.partition("#")[0].strip()
    own = name == TUTORIAL or not script.startswith(("./ci/", "pytest "))
    if own or re.search(r"=\S*\.\w+", script):
        return name
    return next(page for page in RUNNABLE if page != TUTORIAL and script in scripts_of(page))


def scripts_of(name):
    """Return the commands that are run of a page, without their comments."""
    run = [block for block in blocks_of(REPOSITORY / name) if block.mark == "run"]
    return {one.partition("#")[0].strip() for block in run for one in block.commands}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNNABLE)
def test_commands_of_a_page_run_as_written(project, tmp_path, monkeypatch, name):
    root = tmp_path / "copy"
    taken = "bin" if name == TUTORIAL else "."
    shutil.copytree(project / taken, root / taken)
    for who in ("AUTHOR", "COMMITTER"):  # of a page that commits
        monkeypatch.setenv(f"GIT_{who}_NAME", "a reader")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "reader@example.com")
    for block in blocks_of(REPOSITORY / name):
        if block.mark == "file":
            file = root / block.detail
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text + "\n", "utf-8")
            if file.suffix == ".yaml":
                fields = read_yaml(file)  # as the page shows it
                msgspec.convert(fields, suite_type(fields))
                change_suite(file, SHORT | {"launches": 1})
        if block.mark == "run":
            expected = {int(code) for code in re.findall(r"\d+", block.detail)} or {0}
            commands = [one for one in block.commands if name == page_that_runs(one, name)]
            output = [run(root, command, expected) for command in commands]
            if block.detail == "same form":
                shown = form_of(block.shown)
                assert form_of(output[-1])[-len(shown) :] == shown, output[-1]


def form_of(output):
    """Return the lines of an output of ddp_perf.bench without figures and names of hardware."""
    measured = "Measured steps|Avg step time|Gated step|Throughput|Measured samples|CPU|Network"
    plain = re.sub(r"name=.*", "name=…", output.strip())
    return re.sub(rf"^({measured}) +: .*", r"\1", plain, flags=re.MULTILINE).splitlines()


@pytest.mark.parametrize("name", NAMES)
def test_every_console_block_states_whether_it_is_run(name):
    for block in blocks_of(REPOSITORY / name):
        where = f"{name}:{block.line}"
        assert block.language, f"{where}: name the language: console, text, yaml or python"
        if block.language == "console":
            assert block.mark in ("run", "not run"), f"{where}: mark the block: CONTRIBUTING.md"
            assert block.commands, f"{where}: a console block has commands, which begin with '$ '"
        elif block.language == "text":
            assert "$ " not in re.findall(r"^..", block.text, re.MULTILINE), f"{where}: console?"
        if block.mark == "not run":
            assert block.detail, f"{where}: state the reason: <!-- not run: REASON -->"
        if block.mark == "run":
            assert re.fullmatch(r"(exit \d+( or \d+)*|same form)?", block.detail), (
                f"{where}: {block.detail}"
            )


# ---- options and commands ----


def command_options(group, words=()):
    """Return the options of each command, by its words: ("baseline", "ack") → {"--until", …}."""
    found = {words: {"--help"}}
    for parameter in group.params:
        found[words].update(parameter.opts, parameter.secondary_opts)
    for name, command in getattr(group, "commands", {}).items():
        found |= command_options(command, (*words, name))
    return found


COMMANDS = command_options(typer.main.get_command(app))


@pytest.fixture(scope="module")
def pytest_options():
    arguments = ["-m", "pytest", "--help", "-p", "ddp_perf.plugin"]
    shown = subprocess.run(
        [sys.executable, *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    ).stdout
    return set(options_in(shown)) | ALIASES


def spans_of(page):
    """Return what a page shows as code: its spans, and the commands of its console blocks."""
    text = page.read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    commands = [
        command.replace("\\\n", " ") for block in blocks_of(page) for command in block.commands
    ]
    return [*re.findall(r"`([^`\n]+)`", prose), *commands]


def options_in(span):
    return re.findall(r"(?<![\w-])--[a-z][a-z-]+", span)


@pytest.mark.parametrize("name", NAMES)
def test_every_option_and_command_exists(name, pytest_options):
    known = pytest_options.union(*COMMANDS.values())
    for span in spans_of(REPOSITORY / name):
        words = span.split()
        if words[:1] == ["ddp-perf"]:
            command = tuple(word for word in words[1:3] if re.fullmatch(r"[a-z][a-z-]*", word))
            while command not in COMMANDS and len(command) > 1:
                command = command[:-1]
            assert command in COMMANDS, f"{name}: no such command: {span}"
            allowed = COMMANDS[command] | COMMANDS.get((*command, "show"), set())
            span = span.partition(" -- ")[0]  # what follows is for a script
        elif words[:1] == ["pytest"]:
            allowed = pytest_options
        elif "ddp_perf.bench" in words:
            span, allowed = " ".join(words[words.index("ddp_perf.bench") :]), BENCH
        elif span.startswith("--"):
            allowed = known | OTHER_OPTIONS
        else:
            continue  # a command of others, or no command
        assert not set(options_in(span)) - allowed, f"{name}: no such option: {span}"


def test_the_page_of_options_has_every_option_and_command(pytest_options):
    text = (REPOSITORY / "docs" / "options.md").read_text(encoding="utf-8")
    ours = {option for option in pytest_options if option.startswith("--ddp-")}
    assert not {
        option for option in ours | {"--save-baseline", "--ddp-reason"} if option not in text
    }
    assert not {words for words in COMMANDS if " ".join(("ddp-perf", *words)) not in text}


# ---- links ----


def anchors_of(page):
    """Return the anchors of a page's headings as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower().replace("`", "")).replace(" ", "-")
        for heading in headings
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_link_leads_somewhere(name):
    page = (REPOSITORY / name).resolve()
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{name}: {target}"
        of_site = page.parent != DOCS or linked.is_relative_to(DOCS)
        assert of_site, f"{name}: {target}: a site has docs/ alone; write the path as code"
        if anchor:
            assert anchor in anchors_of(linked), f"{name}: {target}"


def nav_pages(entries):
    """Yield the pages below the entries of the site's navigation."""
    for entry in entries:
        for below in entry.values():
            yield from [below] if isinstance(below, str) else nav_pages(below)


def test_the_index_and_the_site_list_every_page():
    pages = sorted(page.name for page in DOCS.glob("*.md"))
    site = yaml.safe_load((REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8"))
    index = (DOCS / "README.md").read_text(encoding="utf-8")

    assert sorted(nav_pages(site["nav"])) == pages
    assert not {page for page in pages if f"]({page})" not in index} - {"README.md"}


def test_all_pages_have_at_most_30_000_words():
    pages = [REPOSITORY / "README.md", *DOCS.glob("*.md")]
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in pages) <= 30_000
