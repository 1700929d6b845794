"""Texts in their published formats, and errors that name file and line."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from ddp_perf.core.subject import DataOptions
from ddp_perf.errors import DataError
from ddp_perf.workloads.corpus import Text, check_texts, read_texts
from tests.builders import make_case

NEWS = '"3","Fears for T N pension","Unions ""disappointed""\nby talks."\n"4","Sky","Private"\n'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The empty folder that DDP_PERF_DATA names."""
    monkeypatch.setenv("DDP_PERF_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def news(folder):
    """``news(text or bytes)`` writes the CSV of AG News."""
    path = folder / "ag_news_csv" / "train.csv"
    path.parent.mkdir()

    def write(content):
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def reviews(folder, **texts):
    """Write IMDB's folders, with one file for each review, and return their parent."""
    for name, contents in texts.items():
        directory = folder / "aclImdb" / "train" / name
        directory.mkdir(parents=True)
        for i, content in enumerate(contents):
            (directory / f"{i}_7.txt").write_bytes(content)
    return folder / "aclImdb" / "train"


def text_case(dataset="ag_news", **changes):
    fields = {"model": {"dataset": dataset}, "data": DataOptions(source="files"), "batch_size": 1}
    return make_case(workload="distilbert", **{**fields, **changes})


def test_ag_news_is_read_with_quotes_and_line_ends_inside_of_fields(news):
    news(NEWS)

    assert list(read_texts("ag_news")) == [
        Text(2, 'Fears for T N pension Unions "disappointed"\nby talks.'),
        Text(3, "Sky Private"),
    ]


def test_imdb_is_read_from_a_folder_for_each_class(folder):
    reviews(folder, neg=[b"Dull.\n", b"Bad"], pos=["Très bon".encode()])

    assert list(read_texts("imdb")) == [Text(0, "Dull.\n"), Text(0, "Bad"), Text(1, "Très bon")]


@pytest.mark.parametrize(
    ("content", "line", "fault"),
    [
        pytest.param(NEWS + '"1","Title"\n', 4, "2 fields, expected 3", id="a field short"),
        pytest.param(NEWS + "\n", 4, "0 fields, expected 3", id="empty line"),
        pytest.param('"5","T","D"\n', 1, "class '5' is not one of 1, 2, 3, 4", id="class"),
        pytest.param("Class Index,Title,Description\n", 1, "class 'Class Index'", id="header"),
        pytest.param(b'"1","T","D"\n"2","T","\xff"\n', 2, "the line is not UTF-8", id="encoding"),
        pytest.param(NEWS + '"1","T","D" x\n', 4, "is not valid CSV: ", id="after a quote"),
        pytest.param(NEWS + '"1","T","never closed', 4, "is not valid CSV: ", id="cut short"),
    ],
)
def test_a_broken_line_of_ag_news_is_named(news, content, line, fault):
    path = news(content)

    with pytest.raises(DataError) as caught:
        check_texts([text_case()])

    assert str(caught.value).startswith(f"{path}:{line}: {fault}")


def test_a_broken_review_is_named_with_its_line(folder):
    path = reviews(folder, neg=[b"good so far\nthen \xff"], pos=[b"fine"])

    with pytest.raises(DataError) as caught:
        check_texts([text_case("imdb")])

    assert (
        str(caught.value)
        == f"{path / 'neg' / '0_7.txt'}:2: the line is not UTF-8; convert the file"
    )


def test_a_class_without_reviews_is_named(folder):
    path = reviews(folder, neg=[b"dull"], pos=[])

    with pytest.raises(DataError, match=re.escape(f"there is no review (*.txt) in {path / 'pos'}")):
        check_texts([text_case("imdb")])


def test_a_missing_file_is_named_with_its_environment_variable(folder):
    with pytest.raises(
        DataError, match=r"DDP_PERF_DATA: there is no file .*ag_news_csv/train\.csv"
    ):
        check_texts([text_case()])


def test_a_missing_folder_is_named(monkeypatch):
    monkeypatch.setenv("DDP_PERF_DATA", "/nowhere")

    with pytest.raises(DataError, match="DDP_PERF_DATA: there is no directory /nowhere"):
        check_texts([text_case()])


def test_an_unset_data_folder_is_an_error_with_its_variable(monkeypatch):
    monkeypatch.delenv("DDP_PERF_DATA", raising=False)

    with pytest.raises(DataError, match="DDP_PERF_DATA must name the folder"):
        check_texts([text_case()])


def test_too_few_samples_for_one_step_are_refused_with_both_counts(news):
    news(NEWS)

    check_texts([text_case(batch_size=1, world_size=2)])
    with pytest.raises(DataError, match=r"ag_news has 2 samples, but one step of .* needs 4"):
        check_texts([text_case(batch_size=2, world_size=2)])


def test_synthetic_cases_need_no_files(monkeypatch):
    monkeypatch.delenv("DDP_PERF_DATA", raising=False)

    check_texts([text_case(data=DataOptions())])


def test_reading_texts_imports_no_torch():
    script = "import sys, ddp_perf.workloads.corpus; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
