"""A report in each medium: the same cells, the worst first, escaped, and as wide as it may be."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.render.latex import table_latex
from ddp_perf.render.markdown import MOST, SIGNS, markdown_escaped, report_markdown
from ddp_perf.render.model import (
    Cell,
    Column,
    NextStep,
    Note,
    Report,
    Section,
    Status,
    Table,
    figures,
)
from ddp_perf.render.model import words as of_words
from ddp_perf.render.page import report_page
from ddp_perf.render.terminal import report_text, table_lines, text_of
from ddp_perf.render.units import counted
from tests.builders import HOSTILE

STATUSES = [Status.RED, Status.UNDECIDED, Status.GREEN]
COLUMNS = (
    Column(title="case", words=True),
    Column(title="verdict", words=True),
    Column(title="colle\u00adctives"),
    Column(title="of the page", media="page"),
)
# Shared parts of the names are left out where room is scarce, so these have none.
names = st.lists(st.from_regex(r"[a-z]{1,12}", fullmatch=True), min_size=1, unique=True)
words = st.text(st.characters(codec="ascii", categories=["L", "N", "P", "S", "Zs"]), min_size=1)

sentences = st.lists(st.from_regex(r"[!-~]{1,12}", fullmatch=True), max_size=15).map(" ".join)


@st.composite
def tables(draw):
    rows = [
        (
            Cell(name, name),
            Cell("RED and more" if status is Status.RED else status.value, status.value, status),
            Cell(f"{number:,}", number),
            Cell("hidden"),
        )
        for name in draw(names)
        for status in [draw(st.sampled_from(STATUSES))]
        for number in [draw(st.integers(0, 10**9))]
    ]
    return Table(label="all", columns=COLUMNS, rows=tuple(rows))


@st.composite
def reports(draw):
    changes = draw(st.lists(sentences.filter(bool), max_size=15))
    parts = tuple(Note(text=text, kind="change") for text in changes)
    return Report(
        title="report",
        verdict="RED",
        status=Status.RED,
        headline=draw(words),
        about=(Note(text=draw(words)),),
        table=draw(tables()),
        sections=(
            Section(title="open", parts=parts, status=Status.UNDECIDED),
            Section(title="red", parts=parts, status=Status.RED),
            Section(title="page", parts=(Note(text=draw(words)),), media="page"),
        ),
        next=NextStep(why=draw(words), command="pytest -m gpu"),
        page="page.html",
        data="page.json",
    )


@given(table=tables(), width=st.integers(60, 140))
def test_a_terminal_shows_every_row_once_within_its_width(table, width):
    lines = table_lines(table, width)

    assert max(map(len, lines)) <= width
    text = " ".join(" ".join(lines).split())
    for name, verdict, number, _ in table.rows:
        assert f"{name.text} {verdict.text} {number.text}" in text or verdict.text.count(" ")
        assert any(line.split()[0] == name.text for line in lines if line.split())
    assert "hidden" not in text


@given(columns=st.integers(1, 30), digits=st.integers(1, 12))
def test_columns_without_room_are_in_further_tables(columns, digits):
    titles = [f"f{at}" for at in range(columns)]
    cells = [f"{at + 1:0{digits}d}" for at in range(columns)]
    table = Table.of_texts((*of_words("case"), *figures(*titles)), [("name", *cells)])

    lines = table_lines(table, 80)

    assert max(map(len, lines)) <= 80
    found = " ".join(lines).split()
    assert [word for word in found if word in titles] == titles
    assert [word for word in found if word in cells] == cells


def test_what_was_printed_is_whole_in_a_command_and_shortened_in_a_report():
    printed = Note(text="\n".join(map(str, range(40))), kind="output")
    report = Report(
        title="report",
        verdict="RED",
        status=Status.RED,
        headline="one failed",
        table=Table(columns=COLUMNS, rows=()),
        sections=(Section(title="failed", parts=(printed,)),),
    )

    assert text_of([printed], 80).split("\n") == list(map(str, range(40)))
    assert "27 lines left out" in report_text(report, 80)
    assert "left out" not in report_text(report, 80, whole=True)


@pytest.mark.parametrize("control", ["\x1b]0;a title\x07", "\x1b[2J", "\x9b31m", "\x08" * 9])
def test_what_steers_a_terminal_is_shown_and_never_sent(control):
    for text in (text_of([f"a case {control}"], 80), text_of([Note(text=control)], 80)):
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)
        assert "\N{REPLACEMENT CHARACTER}" in text


@pytest.mark.parametrize("width", [80, 58, 48], ids=["beside", "broken", "above"])
def test_words_get_the_room_that_figures_leave(width, file_regression):
    """A first cell breaks at its blanks. If it has no room, it is above the others."""
    columns = (*of_words("candidate"), *figures("step ms", "effi\u00adciency"), *of_words("reason"))
    reason = "time not modelled; for what fits nowhere else"
    rows = [
        ("DDP", "31.1", "89", "RECOMMENDED"),
        ("FSDP ZeRO-3 offload + checkpointing", "–", "–", reason),
        (f"mlp-ddp-fp32-ws2-{'b' * 9}", "1,234.50", "75", ""),
        (f"mlp-ddp-fp32-ws2-{'b' * 9}", "1,234.50", "75", "another batch"),
    ]

    text = "\n".join(table_lines(Table.of_texts(columns, rows), width))
    assert max(map(len, text.splitlines())) <= width
    file_regression.check(text, extension=".txt", encoding="utf-8")


@given(reports())
def test_each_medium_has_the_same_cells(report):
    markdown, page = report_markdown(report), report_page(report).decode()

    for name, verdict, number, hidden in report.table.rows:
        cells = f"| {name.text} | {SIGNS[verdict.status]} {verdict.text} | {number.text} |"
        assert cells in markdown
        for cell in (name, verdict, number, hidden):
            assert f"{cell.text}</td>" in page
        assert f"{name.text} & {verdict.text} & {number.text} \\\\\n" in table_latex(report.table)


@given(report=reports(), width=st.integers(20, 140))
def test_no_line_of_a_terminal_but_a_command_or_a_long_word_is_wider_than_it(report, width):
    for line in report_text(report, width).splitlines():
        assert len(line) <= max(width, 80) or line.startswith("next: ") or len(line.split()) == 1


class Page(HTMLParser):
    """A page whose elements are all closed, in order. It has the values of its attributes."""

    def __init__(self, report):
        super().__init__()
        self.open, self.attributes = [], []
        self.source = report_page(report).decode()
        self.feed(self.source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.attributes += attrs
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, self.getpos()


@given(reports())
def test_a_page_is_whole_and_uses_no_network(report):
    page = Page(report)

    loaded = [value for name, value in page.attributes if name in ("src", "href", "action")]
    assert loaded == ["data:,"]  # no icon is looked for
    assert "default-src 'none'" in page.source
    style_and_script = page.source[page.source.index("<style>") : page.source.index("</style>")]
    style_and_script += page.source[page.source.index("<script>") :]
    assert not re.search(r"url\(|@import|https?://|fetch\(|XMLHttp", style_and_script)


@given(reports())
def test_the_worst_is_first_in_a_comment_and_unfolded(report):
    text = report_markdown(report)

    rows = [line for line in text.splitlines() if line.startswith("| ") and " | " in line][1:]
    signs = [row.split(" | ")[1].split()[0] for row in rows]
    assert signs == sorted(signs, key=list(SIGNS.values()).index)
    assert text.index("**red**") < text.index("<summary>open</summary>")
    assert text.count("<details>") == text.count("</details>") == 1


@given(reports())
def test_many_changes_are_counted_where_room_is_scarce_and_whole_on_the_page(report):
    changes = [part.text for part in report.sections[1].parts]

    shown = {"terminal": (report_text(report, 80), 3), "comment": (report_markdown(report), 10)}
    for text, most in shown.values():
        more = len(changes) - most
        assert (f"and {counted(more, 'more change')}: see page.html" in text) == (more > 0)
    page = " ".join(html.unescape(report_page(report).decode()).split())
    for change in changes:
        assert " ".join(change.split()) in page


def hostile():
    note = Note(text=HOSTILE)
    section = Section(title=HOSTILE, verdict=HOSTILE, parts=(note,), status=Status.RED)
    row = tuple(Cell(HOSTILE, HOSTILE) for _ in COLUMNS)
    return Report(
        title=HOSTILE,
        verdict=HOSTILE,
        status=Status.RED,
        headline=HOSTILE,
        about=(note,),
        table=Table(label=HOSTILE, columns=COLUMNS, rows=(row,)),
        sections=(section, Section(title="x", parts=(Note(text=HOSTILE, kind="output"),))),
        next=NextStep(why=HOSTILE, command=HOSTILE),
        page="page.html",
        data="page.json",
    )


def test_no_medium_interprets_a_text():
    comment, page = report_markdown(hostile()), Page(hostile())
    for text in (comment, page.source):
        assert "<script>alert" not in text
        assert "<svg onload" not in text
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    (row,) = (line for line in comment.splitlines() if line.startswith("| &lt;/title"))
    assert len(re.findall(r"(?<!\\)\|", row)) == 4  # of three columns: no further cell


@pytest.mark.parametrize("many", ["rows", "sections"])
def test_a_comment_has_at_most_what_github_takes_and_no_fold_is_cut(many):
    report = hostile()
    long = "x" * 390
    rows = tuple((Cell(f"{n}{long}"), *report.table.rows[0][1:]) for n in range(400))
    sections = tuple(Section(title=f"{n}{long}", parts=(Note(text=long),) * 9) for n in range(400))
    large = {
        "rows": Table(label="all", columns=COLUMNS, rows=rows),
        "sections": report.table,
    }[many]
    text = report_markdown(
        Report(
            title="t",
            verdict="RED",
            status=Status.RED,
            headline="h",
            table=large,
            sections=sections if many == "sections" else (),
            page="page.html",
            data="page.json",
        )
    )

    assert len(text) <= MOST
    assert "see page.html" in text
    assert len(re.findall("<details>", text)) == len(re.findall("</details>", text))


@given(words)
def test_markdown_is_escaped_in_one_line(text):
    assert "\n" not in markdown_escaped(text)
    assert "<" not in markdown_escaped(text)
