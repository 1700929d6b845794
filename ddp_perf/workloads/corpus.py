"""The texts of AG News and IMDB, read from their published formats, without torch.

``DDP_PERF_DATA`` names the folder into which the published archives were unpacked:

- ``ag_news_csv/train.csv``: no header, ``class,title,description``, classes 1 to 4;
- ``aclImdb/train/neg/*.txt`` and ``pos/*.txt``: one review a file.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ddp_perf.core.case import Case
from ddp_perf.core.subject import DATA_FOLDER, TextDataset
from ddp_perf.errors import DataError

CLASSES: dict[TextDataset, int] = {"ag_news": 4, "imdb": 2}
SAMPLES: dict[TextDataset, int] = {"ag_news": 120_000, "imdb": 25_000}  # of the published train set


class Text(NamedTuple):
    """One sample. The label is the class, from 0 on."""

    label: int
    text: str


def data_folder() -> Path:
    """Return the folder that ``DDP_PERF_DATA`` names. Raises DataError if there is none."""
    name = os.environ.get(DATA_FOLDER)
    if not name:
        raise DataError(f"data.source is files, so {DATA_FOLDER} must name the folder of the texts")
    if not Path(name).is_dir():
        raise DataError(f"{DATA_FOLDER}: there is no directory {name}")
    return Path(name)


def read_texts(dataset: TextDataset) -> Iterator[Text]:
    """Yield the train set in the order of its files.

    Raises DataError with file and line if a file is broken.
    """
    folder = data_folder()
    if dataset == "ag_news":
        return _ag_news(folder / "ag_news_csv" / "train.csv")
    return _imdb(folder / "aclImdb" / "train")


def check_texts(cases: Iterable[Case]) -> None:
    """Check the texts that these cases train on, by reading each dataset once.

    Raises DataError if a file is broken, or has too few samples for one step of all ranks.
    """
    counts: dict[TextDataset, int] = {}
    for case in cases:
        if case.training.data.source != "files":
            continue
        dataset: TextDataset = case.training.model["dataset"]  # type: ignore[assignment]  # validated
        if dataset not in counts:
            counts[dataset] = _count(dataset)
        if counts[dataset] < case.samples_per_step:
            raise DataError(
                f"{data_folder()}: {dataset} has {counts[dataset]} samples, but one step of"
                f" {case.id} needs {case.samples_per_step}; take smaller batches"
            )


def _count(dataset: TextDataset) -> int:
    try:
        return sum(1 for _ in read_texts(dataset))
    except OSError as error:
        raise DataError(f"{error.filename}: cannot be read: {error.strerror}") from None


def _ag_news(path: Path) -> Iterator[Text]:
    if not path.is_file():
        raise DataError(f"{DATA_FOLDER}: there is no file {path}")
    with path.open("rb") as file:
        rows = csv.reader(_lines(path, file), strict=True)
        try:
            for row in rows:
                yield _news(path, rows.line_num, row)
        except csv.Error as error:
            raise DataError(f"{path}:{rows.line_num}: is not valid CSV: {error}") from None


def _lines(path: Path, file: Iterable[bytes]) -> Iterator[str]:
    """Decode the lines one by one. Raises DataError with the line of a wrong byte."""
    for number, line in enumerate(file, start=1):
        try:
            yield line.decode()
        except UnicodeDecodeError:
            raise DataError(f"{path}:{number}: the line is not UTF-8; convert the file") from None


def _news(path: Path, line: int, row: list[str]) -> Text:
    if len(row) != 3:
        raise DataError(f"{path}:{line}: {len(row)} fields, expected 3 (class,title,description)")
    label, title, description = row
    if label not in {"1", "2", "3", "4"}:
        raise DataError(f"{path}:{line}: class {label!r} is not one of 1, 2, 3, 4")
    return Text(int(label) - 1, f"{title} {description}")


def _imdb(folder: Path) -> Iterator[Text]:
    for label, name in enumerate(("neg", "pos")):
        files = sorted((folder / name).glob("*.txt"))
        if not files:
            raise DataError(f"{DATA_FOLDER}: there is no review (*.txt) in {folder / name}")
        for path in files:
            with path.open("rb") as file:
                yield Text(label, "".join(_lines(path, file)))
