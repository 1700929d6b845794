"""A diff of baselines reports levels, work, structure, machines and reasons."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.baseline import Rebaseline
from ddp_perf.core.published import PublishedRow, PublishedTable
from ddp_perf.session.baseline_diff import diff_baselines
from tests.builders import (
    make_acknowledgement,
    make_baseline,
    make_case,
    make_case_baseline,
    make_environment,
    make_session,
    make_structure,
)

CASE = make_case()
STORED = make_case_baseline(CASE, make_session([0.01, 0.01]))


def diff(new, old=STORED):
    return diff_baselines(make_baseline({CASE.id: old}), make_baseline({CASE.id: new})).cases


def test_the_same_file_has_no_difference():
    assert diff(STORED) == ()


@pytest.mark.parametrize(
    ("old", "new", "kind", "sessions"),
    [({}, {CASE.id: STORED}, "added", (0, 1)), ({CASE.id: STORED}, {}, "removed", (1, 0))],
)
def test_an_added_or_removed_case_is_reported(old, new, kind, sessions):
    (found,) = diff_baselines(make_baseline(old), make_baseline(new)).cases

    assert (found.case_id, found.kind, found.sessions) == (CASE.id, kind, sessions)


def test_a_changed_level_is_reported_with_its_reason():
    entry = Rebaseline(date="2026-01-02", commit="abc", reason="larger buckets", ratio=1.2)
    new = make_case_baseline(CASE, make_session([0.012], day=2), log=(entry,))
    (found,) = diff(new)

    (level,) = found.levels
    assert (level.metric, level.old, level.new) == ("step_time", 0.01, 0.012)
    assert level.ratio == pytest.approx(1.2)
    assert found.log == (entry,)


def test_sessions_beyond_the_reference_do_not_change_the_level():
    sessions = [make_session([0.01], day=day) for day in range(1, 6)]
    old = make_case_baseline(CASE, *sessions)
    (found,) = diff(make_case_baseline(CASE, *sessions, make_session([0.05], day=6)), old)

    assert found.levels == ()
    assert found.sessions == (5, 6)


def test_other_work_and_another_structure_are_named():
    new = make_case_baseline(
        make_case(batch_size=128),
        make_session([0.01, 0.01]),
        structure=make_structure(gradient_bytes=1, buckets=(1, 2)),
    )
    (found,) = diff(new)

    assert found.work == ("batch_size 64 → 128",)
    assert found.structure == ("gradient bytes 3,232 → 1", "buckets 3,232 → 1 + 2 bytes")


def test_another_version_in_the_newest_session_is_named():
    session = msgspec.structs.replace(
        make_session([0.01], day=2), environment=make_environment(torch="2.14.0")
    )
    (found,) = diff(make_case_baseline(CASE, *STORED.sessions, session))

    assert found.environment == ("torch 2.13.0 → 2.14.0",)


def test_new_and_withdrawn_acknowledgements_are_reported():
    one, two = make_acknowledgement(CASE), make_acknowledgement(CASE, metric="tail")
    found = diff_baselines(make_baseline(acknowledged=(one,)), make_baseline(acknowledged=(two,)))

    assert (found.acknowledged, found.withdrawn) == ((two,), (one,))


def test_a_changed_source_and_first_figure_are_reported():
    new = make_case_baseline(
        CASE,
        *STORED.sessions,
        source="published",
        document="A Report",
        flops=808,
        first={"step_time": 0.02},
    )
    (found,) = diff(new)

    assert found.fields == (
        "document unset → A Report",
        "first.step_time 0.01 → 0.02",
        "flops unset → 808",
        "source measured → published",
    )


def table(*rows, **changes):
    fields = {"name": "t", "document": "A Report", "where": "w", "hardware": "h", "work": {"a": 1}}
    return PublishedTable(**{**fields, **changes}, rows=rows)


def row(world_size, step_ms, **changes):
    return PublishedRow(world_size=world_size, batch_size=32, step_ms=step_ms, **changes)


TABLE = table(row(1, 100), row(2, 105))


def published(old, new):
    found = diff_baselines(*(make_baseline(published=tables) for tables in (old, new)))
    assert found.differs == bool(found.published)
    return found.published


def test_the_same_tables_have_no_difference():
    assert published([TABLE], [TABLE]) == ()


@pytest.mark.parametrize(("old", "new", "kind"), [([], [TABLE], "added"), ([TABLE], [], "removed")])
def test_an_added_or_removed_table_is_reported(old, new, kind):
    (found,) = published(old, new)

    assert (found.name, found.document, found.kind) == ("t", "A Report", kind)


def test_a_changed_table_is_reported_row_by_row():
    new = table(row(1, 99, speedup=1.0), row(4, 110), row(4, 111))
    (found,) = published([TABLE], [new])

    assert found.fields == ()
    assert found.rows == (
        "1 GPU, batch 32: speedup unset → 1.0, step_ms 100 → 99",
        "2 GPUs, batch 32: removed",
        "4 GPUs, batch 32: added",
        "4 GPUs, batch 32: added",
    )


def test_two_rows_of_one_configuration_are_both_reported():
    old = table(row(2, 100), row(2, 105))
    (found,) = published([old], [table(row(2, 100), row(2, 106))])

    assert found.rows == ("2 GPUs, batch 32: step_ms 105 → 106",)


def test_changed_fields_of_a_table_are_reported():
    (found,) = published([TABLE], [table(*TABLE.rows, tolerance=0.1, work={"a": 2})])

    assert found.fields == ("tolerance unset → 0.1", "work.a 1 → 2")
    assert found.rows == ()


def test_a_metric_that_was_added_after_the_reference_has_its_own_reference():
    """Energy was added with the sixth session: its level is that of the sessions since then."""
    without = [make_session([0.01], day=day) for day in range(1, 6)]
    old = make_case_baseline(CASE, *without, make_session([0.01], day=6, energy=2.0))
    new = make_case_baseline(CASE, *without, make_session([0.01], day=7, energy=3.0))
    (found,) = diff(new, old)

    (level,) = found.levels
    assert (level.metric, level.old, level.new) == ("energy", 2.0, 3.0)


def test_other_losses_and_flops_are_reported_with_both_figures():
    new = msgspec.structs.replace(STORED, losses={**STORED.losses, "2": 0.35}, flops=10**6)

    (found,) = diff(new)

    assert found.fields == ("flops unset → 1000000", "loss of step 2 0.7 → 0.35")
