"""Write the pages of the reference from the code, or check that they are current (--check).

A page is made of its template in `pages/`, whose lines ``[[name]]`` are replaced by `BLOCKS`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import msgspec
import typer.main
from schemas import ROOT, SCHEMAS

from ddp_perf.cli.app import app
from ddp_perf.config.loading import suite_schema
from ddp_perf.config.suite import SUBJECTS
from ddp_perf.core.decomposition import TERMS
from ddp_perf.core.environment import Cluster
from ddp_perf.core.measurement import Finding
from ddp_perf.core.subject import MODELS
from ddp_perf.core.verdict import CAUSES, CauseKind, DuelOutcome, Outcome, TestEnd, Verdict
from ddp_perf.errors import ExitCode
from ddp_perf.plugin import INI_KEYS
from ddp_perf.plugin.options import OPTION_GROUPS
from ddp_perf.render.model import SOFT_HYPHEN, Column
from ddp_perf.report.columns import session_columns
from ddp_perf.report.directory import FILES
from ddp_perf.report.duel.report import DUEL_COLUMNS
from ddp_perf.report.duel.rows import NO_VERDICT
from ddp_perf.report.figures import HIDDEN, MEANINGS, SHOWN, UTILISATION
from ddp_perf.report.work_rows import WORK_COLUMNS
from ddp_perf.session.result import conclude

sys.path.append(str(ROOT))  # the studies are no package

from benchmarks.faults.recorded import fault_rows

Node = Mapping[str, Any]  # of a JSON schema


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    yield from (f"| {' | '.join(head)} |", f"{'|---' * len(head)}|")
    yield from (f"| {' | '.join(map(str, row))} |" for row in rows)


# Options and commands.


class Recorded:
    """A group of options that keeps the lines of its options."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def addoption(self, name: str, **given: Any) -> None:
        value = given.get("metavar", "")
        value = f"[={value}]" if given.get("nargs") == "?" else value and f"={value}"
        self.lines.append(f"- `{name}{value}`: {given['help'].replace('%%', '%')}")


def options() -> Iterator[str]:
    for title, adders in OPTION_GROUPS.items():
        group = Recorded()
        for add in adders:
            add(group)  # type: ignore[arg-type]  # it has the one method that is used
        yield from ("", f"## {title.capitalize()}", "", *group.lines)


def ini_keys() -> Iterator[str]:
    return (f"- `{key}`: {text}" for key, (_, text) in INI_KEYS.items())


def cluster_keys() -> Iterator[str]:
    schema = msgspec.json.schema(Cluster)["$defs"]["Cluster"]
    for name, field in schema["properties"].items():
        yield f"- `{name}`: {field['description']}"


def commands() -> Iterator[str]:
    """Yield each command with its arguments and the names of its options, by the help's panels."""
    panels: dict[str, list[str]] = {}
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        below = getattr(command, "commands", {})
        panels.setdefault(command.rich_help_panel, []).extend(
            (
                _command(name, command),
                *(f"    {_command(f'{name} {one}', found)}" for one, found in below.items()),
            )
        )
    for panel, lines in panels.items():
        yield from ("", f"### {panel}", "", *lines)


def _command(words: str, command: Any) -> str:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    named = " ".join(one.metavar or one.name.upper() for one in arguments)
    options = [one for one in command.params if one not in arguments and not one.hidden]
    names = ["/".join((one.opts[-1], *one.secondary_opts)) for one in options]
    names = [f"`{name}`" for name in names if name not in ("--help", "--json")]
    line = command.get_short_help_str(1000).rstrip(".")
    return f"- `{f'ddp-perf {words} {named}'.strip()}`: {line}. {', '.join(names)}".rstrip()


# The fields of a suite file.


_TITLES = {
    ("workload", "collectives", "script"): "Every suite",
    ("workload", "script"): "A workload or a script",
    ("workload",): "A workload",
    ("script",): "A script",
    ("collectives",): "Collectives",
}


def suite_fields() -> Iterator[str]:
    """Yield each field under a heading of its own, by the subjects of the suites that have it."""
    definitions = suite_schema()["$defs"]
    suites = {subject: definitions[suite.__name__] for subject, suite in SUBJECTS.items()}
    groups: dict[tuple[str, ...], list[str]] = {subjects: [] for subjects in _TITLES}
    for name in dict.fromkeys(name for suite in suites.values() for name in suite["properties"]):
        having = tuple(key for key, suite in suites.items() if name in suite["properties"])
        groups[having].append(name)
    for subjects, names in groups.items():
        of_group = {subject: suites[subject] for subject in subjects}
        yield from ("", f"## {_TITLES[subjects]}")
        for name in names:
            yield from ("", f"### `{name}`", *_described(name, of_group, definitions))


def _described(name: str, having: Mapping[str, Node], definitions: Node) -> Iterator[str]:
    """Yield the texts of a field: one, if it is the same in all suites that have it."""
    texts = {
        subject: _text(suite["properties"][name], needed=name in suite["required"])
        for subject, suite in having.items()
    }
    written: set[str] = set()  # keys of two suites are often the same
    for subject, text in texts.items():
        same = len(set(texts.values())) == 1
        if same and written:
            continue
        keys = [*_keys(having[subject]["properties"][name], definitions)]
        yield from ("", text if same else f"{subject.capitalize()}: {text}")
        new = [line for line in keys if line not in written]
        yield from ("", *new) if new else ()
        written |= {text, *keys}


def _text(field: Node, *, needed: bool = False) -> str:
    """Return the meaning of a field, and after it what its description leaves open."""
    default, text = field.get("default"), field.get("description", "")
    kind = _kind(field).removesuffix(" or `null`") if default is None else _kind(field)
    known = "enum" in field and all(str(one).lower() in text.lower() for one in field["enum"])
    about = [] if known or kind == "text" else [kind]
    if needed:
        about.append("required")
    elif isinstance(default, int | float | str) and default != "":
        about = [*([] if known or "enum" not in field else about), f"default `{_yaml(default)}`"]
    return f"{text} *{', '.join(about)}*" if about else text


def _yaml(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _keys(field: Node, definitions: Node) -> Iterator[str]:
    """Yield the keys of a field that is a mapping; of a hook, below its kind."""
    seen: set[str] = set()
    for name in dict.fromkeys(_references(field)):
        one = definitions[name]
        kind = one["properties"].get("kind")
        if kind is not None:
            yield f"- `kind: {kind['enum'][0]}`: {' '.join(one['description'].split())}"
        for key, below in one["properties"].items():
            text = f"`{key}`: {_text(below)}"
            if key != "kind":
                yield f"{'    ' if kind else ''}- {f'`{key}`: as above' if text in seen else text}"
            seen.add(text)


def _references(node: Node) -> Iterator[str]:
    if "$ref" in node:
        yield node["$ref"].rpartition("/")[2]
    for one in (*node.get("anyOf", ()), *([node["items"]] if "items" in node else ())):
        yield from _references(one)


def _kind(node: Node) -> str:
    """Return the type of a field in words."""
    if "anyOf" in node:
        return " or ".join(dict.fromkeys(map(_kind, node["anyOf"])))
    if "enum" in node:
        return " or ".join(f"`{one}`" for one in node["enum"])
    if "items" in node:
        return f"list of {_kind(node['items'])}"
    if "$ref" in node or node["type"] == "object":
        return "mapping"
    limits = " and ".join(f"{sign} {node[key]:.9g}" for key, sign in _LIMITS.items() if key in node)
    return f"{_WORDS.get(node['type'], node['type'])} {limits}".strip()


_LIMITS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
_WORDS = {"string": "text", "null": "`null`"}


def models() -> Iterator[str]:
    """Yield the arguments of each workload with their defaults."""
    for workload, model in MODELS.items():
        fields = msgspec.json.schema(model)["$defs"][model.__name__]["properties"]
        given = ", ".join(
            f"`{name}: {json.dumps(one['default'])}`" if "default" in one else f"`{name}`"
            for name, one in fields.items()
        )
        yield f"- `{workload}`: {given}"


# Columns.


_TERM_COLUMNS = [
    Column(title=name, key=name if name in TERMS else "", meaning=MEANINGS[name]) for name in SHOWN
] + [Column(title="hidden", meaning=HIDDEN)]
_TABLES: dict[str, Sequence[Column]] = {
    "A session: `comprehensive_summary.csv`": session_columns(),
    "Utilisation: `comprehensive_summary.csv`": [one.column for one in UTILISATION],
    "Terms of a step, in ms: `terms` in `duel.json`": _TERM_COLUMNS,
    "A duel: `rows` in `duel.json`": DUEL_COLUMNS,
    "Counted work: `rows` in `work.json`": WORK_COLUMNS,
}


def columns() -> Iterator[str]:
    for title, found in _TABLES.items():
        yield from ("", f"## {title}", "")
        for one in found:
            title = one.title.replace(SOFT_HYPHEN, "")
            named = f"**{title}** `{one.key}`" if one.key else f"**{title}**"
            yield f"- {f'`{title}`' if title == one.key else named}: {one.meaning}"


# Verdicts, exit codes, causes.


def outcomes() -> Iterator[str]:
    rows = ((one.value, _ENDS[one.test], _exit_code(one), one.meaning) for one in Outcome)
    yield from table(("verdict", "a test", "exit code of a command", "meaning"), rows)


_ENDS: dict[TestEnd, str] = {
    "passes": "passes",
    "fails": "**fails**",
    "skips": "is skipped",
    "warns": "passes with a warning, or is skipped",
}


def _exit_code(outcome: Outcome) -> int:
    """Return the exit code of the commands that judge, where this is the only verdict."""
    finding = Finding(case_id="", metric="", verdict=Verdict(outcome=outcome, reason=""))
    return conclude([finding], failed=False, missing=False).exit_code.value


def duel_outcomes() -> Iterator[str]:
    words = {one.value: one.meaning for one in DuelOutcome} | NO_VERDICT
    yield from (f"- {word}: {meaning}" for word, meaning in words.items())


def exit_codes() -> Iterator[str]:
    rows = ((code.value, code.meaning, code.remedy) for code in ExitCode)
    yield from table(("exit code", "meaning", "what to do"), rows)


def causes() -> Iterator[str]:
    kinds: tuple[CauseKind, ...] = get_args(CauseKind)
    yield from (f"- **{kind}**: {CAUSES[kind]}" for kind in kinds)


# Files.


def files() -> Iterator[str]:
    yield from (f"- `{name}`: {use}" for name, use in FILES.items())


_OF_SCHEMA = {
    "bench_configs/schema.json": "suite files: [suite.md](suite.md)",
    "baselines/schema/baseline.schema.json": "`baselines/ACCELERATOR.json`",
    "baselines/schema/work.schema.json": "`baselines/structure/SUITE.json`,"
    " `baselines/work/TORCH/SUITE.json`",
    "docs/advise.schema.json": "`ddp-perf advise --json`",
    "docs/bisect.schema.json": "`ddp-perf bisect --json`: commits, versions of torch",
    "docs/duel.schema.json": "`duel.json`, `ddp-perf duel --json`",
    "docs/environments.schema.json": "`ddp-perf bisect --json`: packages, variables",
    "docs/judge.schema.json": "`ddp-perf judge --json`",
    "docs/notification.schema.json": "what `--ddp-notify URL` posts",
    "docs/results.schema.json": "`results.json`, `--ddp-json`",
    "docs/sweep.schema.json": "`ddp-perf sweep --json`",
    "docs/trace.schema.json": "`ddp-perf trace --json`",
    "docs/work-report.schema.json": "`work.json`",
}


def json_schemas() -> Iterator[str]:
    yield from (f"- {_link(path)}: {_OF_SCHEMA[path]}" for path in SCHEMAS)


def _link(path: str) -> str:
    """Return a link to a file of docs/, and the path of another one: a site has only docs/."""
    name = path.removeprefix("docs/")
    return f"`{path}`" if name == path else f"[{name}]({name})"


# The pages.


PAGES = Path(__file__).parent / "pages"
BLOCKS: dict[str, Callable[[], Iterator[str]]] = {
    one.__name__: one
    for one in (
        *(options, ini_keys, cluster_keys, commands, suite_fields, models, columns),
        *(outcomes, duel_outcomes, exit_codes, causes, files, json_schemas, fault_rows),
    )
}


def page(template: Path) -> str:
    """Return the text of a page."""
    text = re.sub(
        r"^\[\[(\w+)\]\]$",
        lambda found: "\n".join(BLOCKS[found[1]]()).strip("\n"),
        template.read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    )
    return re.sub(r"\n{3,}", "\n\n", text)


def main(check: bool) -> int:
    stale = []
    for template in sorted(PAGES.glob("*.md")):
        path, text = ROOT / "docs" / template.name, page(template)
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(path.name)
        if not check:
            path.write_text(text, encoding="utf-8")
    if check and stale:
        print(f"docs/: out of date: {', '.join(stale)}; run python ci/reference.py")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
