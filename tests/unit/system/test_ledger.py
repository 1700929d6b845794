"""Ledgers: entries that survive a kill and a full disk, and conditions that are never mixed."""

from __future__ import annotations

import contextlib
import resource

import msgspec
import pytest

from ddp_perf.errors import ResultsError
from ddp_perf.system.ledger import Ledger

CONDITIONS = {"torch": "2.13.0", "cuda": None}
REMEDY = "give another --output"


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    number: int
    text: str = "a text that is a little longer"


ENTRIES = [Entry(number) for number in range(3)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "new" / "launches.jsonl"


def open_ledger(path, conditions=CONDITIONS):
    return contextlib.closing(Ledger(path, Entry, conditions, remedy=REMEDY))


def read(path):
    with open_ledger(path) as ledger:
        return ledger.entries


@pytest.fixture
def written(path):
    with open_ledger(path) as ledger:
        for count, entry in enumerate(ENTRIES, start=1):
            ledger.append(entry)
            assert len(path.read_bytes().splitlines()) == 1 + count  # on disk at once
    return path


def test_a_later_run_goes_on_after_the_entries_of_the_earlier_one(written):
    with open_ledger(written) as ledger:
        ledger.append(Entry(3))
        assert (ledger.earlier, ledger.entries) == (3, [*ENTRIES, Entry(3)])

    assert read(written) == [*ENTRIES, Entry(3)]


def test_a_second_run_does_not_cut_what_the_first_one_writes(path):
    with open_ledger(path) as first:
        with pytest.raises(ResultsError) as caught, open_ledger(path):
            pass
        first.append(ENTRIES[0])

    assert read(path) == ENTRIES[:1]
    expected = "another run of the same measurement writes it; wait until it ends"
    assert str(caught.value) == f"{path}: {expected}"


@pytest.mark.parametrize("cut", [1, 20, 40])
def test_an_incomplete_last_line_is_dropped_and_the_file_continues(written, cut):
    written.write_bytes(written.read_bytes()[:-cut])

    with open_ledger(written) as ledger:
        assert ledger.entries == ENTRIES[:2]
        ledger.append(ENTRIES[2])

    assert read(written) == ENTRIES


@pytest.mark.parametrize("left", [0, 1, 50])
def test_a_file_with_an_incomplete_first_line_is_begun_again(written, left):
    written.write_bytes(written.read_bytes()[:left])

    assert read(written) == []


def test_a_broken_line_is_refused_by_number_and_left_unchanged(written):
    lines = written.read_bytes().splitlines(keepends=True)
    spoiled = b"".join([*lines[:2], b'{"number":0\n', *lines[3:], b"torn"])
    written.write_bytes(spoiled)

    with pytest.raises(ResultsError, match=rf"launches.jsonl: line 3: .*{REMEDY}"):
        read(written)

    assert written.read_bytes() == spoiled


@pytest.mark.parametrize("text", ["something else", "something\nelse\n", '{"a": 1}\n', "\n"])
def test_another_kind_of_file_is_refused_and_left_unchanged(path, text):
    path.parent.mkdir()
    path.write_text(text)

    with pytest.raises(ResultsError, match=rf"line 1: .*{REMEDY}"):
        read(path)

    assert path.read_text() == text


@pytest.mark.parametrize(
    ("changed", "said"),
    [({"torch": "2.14.0"}, "torch 2.13.0 → 2.14.0"), ({"cuda": "13.0"}, "cuda unset → 13.0")],
)
def test_entries_under_other_conditions_are_refused(written, changed, said):
    before = written.read_bytes()

    with pytest.raises(ResultsError, match=f"other conditions: {said}; {REMEDY}"):
        open_ledger(written, {**CONDITIONS, **changed})

    assert written.read_bytes() == before


def test_another_schema_version_is_refused(written):
    written.write_text(written.read_text().replace('"schema_version":2', '"schema_version":9'))

    with pytest.raises(ResultsError, match=rf"is 9, this ddp-perf reads 2.*{REMEDY}"):
        read(written)


def test_a_path_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(ResultsError, match=rf"file.launches.jsonl: cannot be written: .*{REMEDY}"):
        read(tmp_path / "file" / "launches.jsonl")


@contextlib.contextmanager
def full_disk(path, *, left):
    """Let the file grow by at most ``left`` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + left, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("left", [0, 30])
def test_a_full_disk_is_reported_and_earlier_entries_stay(written, left):
    with full_disk(written, left=left), open_ledger(written) as ledger:
        with pytest.raises(ResultsError, match=r"cannot be written: .*; what it has is kept"):
            ledger.append(ENTRIES[0])
        assert ledger.entries == ENTRIES

    assert read(written) == ENTRIES


# One file for each question and its conditions.


QUESTION = {"good": "a", "bad": "b"}


def ask(directory, question=QUESTION, conditions=CONDITIONS):
    return contextlib.closing(Ledger.of_question(directory, Entry, question, conditions))


@pytest.fixture
def asked(tmp_path):
    with ask(tmp_path) as ledger:
        ledger.append(ENTRIES[0])
    return ledger.path


def test_changed_conditions_begin_anew_say_so_and_keep_the_entries(tmp_path, asked):
    with ask(tmp_path, conditions={**CONDITIONS, "torch": "2.14.0"}) as ledger:
        assert (ledger.entries, ledger.changed) == ([], ["torch 2.13.0 → 2.14.0"])
    with ask(tmp_path) as ledger:
        assert (ledger.path, ledger.entries, ledger.changed) == (asked, ENTRIES[:1], [])


@pytest.mark.parametrize("name", ["good", "bad"])
def test_another_question_has_a_file_of_its_own(tmp_path, asked, name):
    with ask(tmp_path, {**QUESTION, name: "other"}) as ledger:
        assert (ledger.entries, ledger.changed) == ([], [])


@pytest.mark.parametrize("content", [b"", b'{"schema_version": 99}\n'])
def test_an_unreadable_file_of_other_conditions_does_not_matter(tmp_path, asked, content):
    asked.write_bytes(content)

    with ask(tmp_path, conditions={**CONDITIONS, "torch": "2.14.0"}) as ledger:
        assert (ledger.entries, ledger.changed) == ([], [])
