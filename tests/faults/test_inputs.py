"""A file that says nonsense is read, or refused in one line that names it: never a traceback."""

from __future__ import annotations

import random

import pytest

from tests.faults.inputs import READERS, changed, refusal

FILES = 60  # of each kind; `python benchmarks/faults --part inputs` changes more


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.kind)
def test_a_changed_file_is_read_or_refused_by_its_name(reader, tmp_path):
    seed, draw = reader.seed(), random.Random(1)
    assert refusal(reader, seed, tmp_path) is None

    refused = [refusal(reader, changed(seed, draw), tmp_path) for _ in range(FILES)]

    errors = [error for error in refused if error is not None]
    assert errors
    assert [error for error in errors if reader.name not in error] == []
    assert max(error.count("\n") for error in errors) < 2


BOMB = b"a: &a [1]\n" + b"".join(
    b"%c: &%c [%s]\n" % (98 + level, 98 + level, b",".join([b"*%c" % (97 + level)] * 9))
    for level in range(9)
)


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.kind)
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"[" * 200_000, id="deep lists"),
        pytest.param(b'{"a":' * 200_000, id="deep tables"),
        pytest.param(BOMB, id="aliases of aliases"),
        pytest.param(b"a: &a [*a]\n", id="an alias within itself"),
        pytest.param(b"suite: !!python/object/apply:os.system ['true']\n", id="code"),
        pytest.param("suite: x".encode("utf-16"), id="UTF-16"),
        pytest.param(b"\0" * 100, id="zeros"),
        pytest.param(b"suite: " + b"9" * 100_000, id="a huge number"),
    ],
)
def test_a_hostile_file_is_refused_by_its_name(reader, data, tmp_path):
    error = refusal(reader, data, tmp_path)

    assert error is not None
    assert reader.name in error
    assert len(error) < 1000
