"""A file that says nonsense is read, or refused in one line that names it: never a traceback."""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.cli.app import app
from ddp_perf.errors import BaselineError
from ddp_perf.history.store import HistoryStore
from tests.builders import make_baseline, make_case
from tests.faults.inputs import CHANGES, HOSTILE, READERS, is_named, little_memory, refusal
from tests.recorded_sessions import make_recorded_session

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


OUT = ("../../out", "/tmp/out", "a/b", "..", "\0")


@pytest.mark.parametrize("name", OUT)
def test_no_name_that_is_read_leads_out_of_the_baselines(tmp_path, name):
    directory = tmp_path / "a/b/baselines"
    directory.mkdir(parents=True)
    store = BaselineStore(directory)
    before = {*tmp_path.rglob("*")}
    baseline = make_baseline(accelerator=name)

    for write in (
        lambda: store.update(name, lambda stored: baseline),
        lambda: store.keep_patch(name, b"x"),
        lambda: store.work.update(name, "2.13", lambda stored: stored),
    ):
        with contextlib.suppress(BaselineError):
            write()

    written = {*tmp_path.rglob("*")} - before
    assert [path for path in written if not path.is_relative_to(directory)] == []
    assert not Path("/tmp/out.json").exists()


def test_no_name_of_a_history_leads_out_of_its_site(tmp_path):
    case = make_case(id="../../out", suite="../out")
    sessions = [make_recorded_session(case, number, 0.01) for number in range(1, 4)]
    url = f"sqlite:///{tmp_path}/history.sqlite"
    with contextlib.closing(HistoryStore(url)) as store:
        store.append(sessions)

    done = CliRunner().invoke(app, ["site", "--history", url, "--out", str(tmp_path / "a/site")])

    assert done.exit_code == 0, done.output
    assert {path.name for path in tmp_path.iterdir()} == {"history.sqlite", "a"}
    assert {path.name for path in (tmp_path / "a").iterdir()} == {"site"}
