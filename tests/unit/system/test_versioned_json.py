"""Versioned JSON: older versions are migrated step by step, and errors name the field."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.errors import ResultsError
from ddp_perf.system.versioned_json import VersionedJson


class Document(msgspec.Struct, frozen=True, kw_only=True):
    schema_version: int = 3
    length_s: float


def rename_seconds(data):
    data["length_s"] = data.pop("seconds")


def from_milliseconds(data):
    data["seconds"] = data.pop("ms") / 1e3


DOCUMENT = VersionedJson(
    schema=Document,
    version=3,
    kind="a document",
    error=ResultsError,
    remedy="write it again",
    migrations={1: from_milliseconds, 2: rename_seconds},
)


@pytest.mark.parametrize(
    "text",
    [
        '{"schema_version": 3, "length_s": 0.5}',
        '{"schema_version": 2, "seconds": 0.5}',
        '{"schema_version": 1, "ms": 500}',
    ],
)
def test_every_version_is_read(tmp_path, text):
    path = tmp_path / "document.json"
    path.write_text(text)

    assert DOCUMENT.read(path) == Document(length_s=0.5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "where: is cut short, or is not JSON"),
        ("[]", "where: schema_version: missing, so this is not a document"),
        ('{"length_s": 1}', "where: schema_version: missing, so this is not a document"),
        (
            '{"schema_version": 4}',
            "where: schema_version: is 4, this ddp-perf reads 3: a newer ddp-perf wrote the file;"
            " upgrade ddp-perf, or ",
        ),
        ('{"schema_version": 0}', "where: schema_version: is 0, this ddp-perf reads 3; use"),
        ('{"schema_version": [3]}', "where: schema_version: is [3], this ddp-perf reads 3; use"),
        ('{"schema_version": 2}', "where: a field is missing or has another type than in version"),
        ('{"schema_version": 3, "length_s": "x"}', "where: length_s: Expected `float`, got `str`"),
        ('{"schema_version": 3, "length_s": NaN}', "where: length_s: Expected `float`, got `str`"),
        ('{"schema_version": 3, "length_s": 1e999}', "where: length_s: Expected `float`"),
        ('{"schema_version": 3}', "where: the file: Object missing required field `length_s`"),
    ],
)
def test_a_broken_document_is_refused_with_place_field_and_remedy(text, message):
    with pytest.raises(ResultsError) as caught:
        DOCUMENT.decode(text.encode(), "where")

    assert str(caught.value).startswith(message)
    assert str(caught.value).endswith("; write it again") or "or write it" in str(caught.value)


def test_a_missing_file_is_none_or_an_error(tmp_path):
    path = tmp_path / "document.json"

    assert DOCUMENT.read_if_present(path) is None
    with pytest.raises(ResultsError, match=r"cannot be read: No such file .*; write it again"):
        DOCUMENT.read(path)


def test_a_directory_cannot_be_read(tmp_path):
    with pytest.raises(ResultsError, match="cannot be read: Is a directory; write it again"):
        DOCUMENT.read_if_present(tmp_path)
