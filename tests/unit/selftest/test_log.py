"""The file of a self-test's launches: no launch is lost, and no other file is continued."""

from __future__ import annotations

import contextlib
import resource

import msgspec
import pytest

from ddp_perf.errors import ResultsError
from ddp_perf.selftest.trials import SelftestLog, conditions_of
from tests.builders import make_case, make_environment
from tests.unit.selftest.selftest_machine import make_timed_launch

CASE, HERE = make_case(), make_environment()
LAUNCHES = [make_timed_launch(percent, number=i) for i, percent in enumerate([0, 0, 20])]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "new" / "launches.jsonl"


def open_log(path, case=CASE, environment=HERE):
    return contextlib.closing(SelftestLog(path, conditions_of(case, environment)))


def read(path):
    with open_log(path) as log:
        return log.launches


@pytest.fixture
def written(path):
    with open_log(path) as log:
        for launch in LAUNCHES:
            log.append(launch)
    return path


def test_appended_launches_are_read_again(written):
    assert read(written) == LAUNCHES


def test_every_launch_is_on_disk_as_soon_as_it_is_appended(path):
    with open_log(path) as log:
        for count, launch in enumerate(LAUNCHES, start=1):
            log.append(launch)
            assert len(path.read_bytes().splitlines()) == 1 + count


@pytest.mark.parametrize("cut", [1, 20, 100])
def test_an_incomplete_last_line_is_dropped_and_the_file_continues(written, cut):
    written.write_bytes(written.read_bytes()[:-cut])

    with open_log(written) as log:
        assert log.launches == LAUNCHES[:2]
        log.append(LAUNCHES[2])

    assert read(written) == LAUNCHES


@pytest.mark.parametrize("left", [0, 1, 50])
def test_a_file_with_an_incomplete_first_line_is_begun_again(written, left):
    written.write_bytes(written.read_bytes()[:left])

    assert read(written) == []


def test_a_broken_line_is_refused_by_number_and_left_unchanged(written):
    lines = written.read_bytes().splitlines(keepends=True)
    spoiled = b"".join([*lines[:2], b'{"percent":0\n', *lines[3:], b"torn"])
    written.write_bytes(spoiled)

    with pytest.raises(ResultsError, match=r"launches.jsonl: line 3: .*give another --output"):
        read(written)

    assert written.read_bytes() == spoiled


@pytest.mark.parametrize("text", ["something else", "something\nelse\n", '{"a": 1}\n', "\n"])
def test_another_kind_of_file_is_refused_and_left_unchanged(path, text):
    path.parent.mkdir()
    path.write_text(text)

    with pytest.raises(ResultsError, match=r"line 1: .*give another --output"):
        read(path)

    assert path.read_text() == text


@pytest.mark.parametrize(
    ("case", "environment", "said"),
    [
        pytest.param(CASE, {"torch": "2.14.0"}, "torch 2.13.0 → 2.14.0", id="torch"),
        pytest.param(CASE, {"commit": "fedcba"}, "commit 0123456789ab → fedcba", id="commit"),
        pytest.param(CASE, {"host": "other"}, "host host → other", id="machine"),
        pytest.param(CASE, {"cuda": "13.0"}, "cuda unset → 13.0", id="new"),
        pytest.param(make_case(id="other"), {}, "case .*-b64 → other", id="case"),
        pytest.param(make_case(batch_size=32), {}, "batch_size 64 → 32", id="work"),
    ],
)
def test_launches_under_other_conditions_are_refused(written, case, environment, said):
    before = written.read_bytes()

    with (
        pytest.raises(ResultsError, match=f"other conditions: {said}; give another --output"),
        open_log(written, case, msgspec.structs.replace(HERE, **environment)),
    ):
        pass

    assert written.read_bytes() == before


def test_the_length_of_a_launch_is_a_condition_but_not_the_number_of_launches(written):
    schedule = CASE.schedule
    more = msgspec.structs.replace(CASE, schedule=msgspec.structs.replace(schedule, launches=9))
    with open_log(written, more) as log:
        assert len(log.launches) == 3

    longer = msgspec.structs.replace(CASE, schedule=msgspec.structs.replace(schedule, steps=99))
    with pytest.raises(ResultsError, match="steps 12 → 99"):
        open_log(written, longer)


def test_another_schema_version_is_refused(written):
    written.write_text(written.read_text().replace('"schema_version":1', '"schema_version":2'))

    with pytest.raises(ResultsError, match=r"is 2, this ddp-perf reads 1.*--output, or"):
        read(written)


def test_a_path_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(ResultsError, match=r"file.launches.jsonl: cannot be written: .*--output"):
        read(tmp_path / "file" / "launches.jsonl")


@pytest.fixture
def full_disk():
    """``with full_disk(path, left=N)``: the file can grow by at most N bytes."""

    @contextlib.contextmanager
    def limited(path, *, left):
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + left, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    return limited


@pytest.mark.parametrize("left", [0, 30])
def test_a_full_disk_is_reported_and_earlier_launches_stay(written, full_disk, left):
    with full_disk(written, left=left), open_log(written) as log:
        with pytest.raises(ResultsError, match=r"cannot be written: .*; earlier launches are kept"):
            log.append(LAUNCHES[0])
        assert log.launches == LAUNCHES

    assert read(written) == LAUNCHES
