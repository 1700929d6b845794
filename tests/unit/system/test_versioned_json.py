"""Versioned JSON: another version is refused, and errors name the field."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.errors import ResultsError
from ddp_perf.system.files import VersionedJson


class Document(msgspec.Struct, frozen=True, kw_only=True):
    schema_version: int = 3
    length_s: float


DOCUMENT = VersionedJson(
    schema=Document,
    version=3,
    kind="a document",
    error=ResultsError,
    remedy="write it again",
)


def test_its_version_is_read(tmp_path):
    path = tmp_path / "document.json"
    path.write_text('{"schema_version": 3, "length_s": 0.5}')

    assert DOCUMENT.read(path) == Document(length_s=0.5)


OTHER = "ddp-perf reads 3; use the ddp-perf that wrote the file, or write it again"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "where: is cut short, or is not JSON"),
        ("[]", "where: schema_version: missing, so this is not a document"),
        ('{"length_s": 1}', "where: schema_version: missing, so this is not a document"),
        *(
            (f'{{"schema_version": {found}}}', f"where: schema_version: is {found}, this {OTHER}")
            for found in (4, 2, 0, [3])
        ),
        ('{"schema_version": true}', f"where: schema_version: is True, this {OTHER}"),
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
    assert str(caught.value).endswith("write it again")


def test_the_remedy_for_another_version_may_be_another_one():
    document = msgspec.structs.replace(DOCUMENT, anew="delete it")

    with pytest.raises(ResultsError, match=r"reads 3; use the .*, or delete it$"):
        document.decode(b'{"schema_version": 2}', "where")


def test_a_missing_file_is_none_or_an_error(tmp_path):
    path = tmp_path / "document.json"

    assert DOCUMENT.read_if_present(path) is None
    with pytest.raises(ResultsError, match=r"cannot be read: No such file .*; write it again"):
        DOCUMENT.read(path)


def test_a_directory_cannot_be_read(tmp_path):
    with pytest.raises(ResultsError, match="cannot be read: Is a directory; write it again"):
        DOCUMENT.read_if_present(tmp_path)
