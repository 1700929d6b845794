"""A file that says nonsense is read, or refused in one line that names it: never a traceback."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.faults.inputs import CHANGES, HOSTILE, READERS, is_named, little_memory, refusal

FILES = 15  # of each kind and change; `python benchmarks/faults --part inputs` has more


@pytest.fixture(scope="module", params=READERS, ids=lambda reader: reader.kind)
def reader(request):
    return request.param


def test_a_changed_file_is_read_or_refused_by_its_name(reader, tmp_path):
    seed, draw = reader.seed(), random.Random(1)
    assert refusal(reader, seed, tmp_path) is None
    changed = [change(seed, draw) for change in CHANGES.values() for _ in range(FILES)]

    with little_memory():
        refused = [refusal(reader, data, tmp_path) for data in changed]

    errors = [error for error in refused if error is not None]
    assert errors
    assert [error for error in errors if not is_named(reader, tmp_path, error)] == []


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_file_is_refused_by_its_name(reader, data, tmp_path):
    with little_memory():
        error = refusal(reader, data, tmp_path)

    assert error is not None
    assert is_named(reader, tmp_path, error), error


_VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text() | st.integers(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
_JSON = [reader for reader in READERS if reader.name.endswith(".json")]


@pytest.mark.parametrize("reader", _JSON, ids=lambda reader: reader.kind)
@settings(suppress_health_check=[HealthCheck.too_slow])  # a busy machine draws slowly
@given(value=_VALUES, version=st.integers(0, 20))
def test_any_document_of_any_version_is_read_or_refused(tmp_path_factory, reader, value, version):
    fields = value if isinstance(value, dict) else {"cases": value, "traceEvents": value}
    document = json.dumps({**fields, "schema_version": version}).encode("utf-8", "surrogatepass")
    directory = tmp_path_factory.mktemp("any")

    error = refusal(reader, document, directory)

    assert error is None or is_named(reader, directory, error)
