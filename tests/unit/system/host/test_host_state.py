"""The use of the host is that of this moment, by two readings of /proc/stat."""

from __future__ import annotations

import pytest

import ddp_perf.system.host.host as host_state
from ddp_perf.system.host.host import read_host_state


@pytest.fixture
def busy(tmp_path, monkeypatch):
    """``busy(before, after)``: the use between two readings of (work, idle) of each core."""
    monkeypatch.setattr(host_state, "allowed_cores", lambda: (0, 1))
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "loadavg").write_text("9.00 9.00 9.00 3/100 1000\n")

    def write(readings):
        lines = [f"cpu{i} {work} 0 0 {idle} 0 0 0 0" for i, (work, idle) in enumerate(readings)]
        (tmp_path / "proc" / "stat").write_text("\n".join(lines) + "\n")

    def use(before, after):
        write(before)
        return read_host_state(tmp_path, wait=lambda: write(after)).busy

    return use


def test_a_session_that_is_over_does_not_make_the_host_busy(busy):
    assert busy([(9000, 100), (9000, 100)], [(9000, 200), (9000, 200)]) == 0


def test_work_of_the_cores_that_this_process_may_use_counts(busy):
    before = [(9000, 100), (9000, 100), (9000, 100)]

    assert busy(before, [(9100, 100), (9025, 175), (9100, 100)]) == pytest.approx(1.25)


def test_a_host_that_counts_nothing_has_no_use(busy):
    assert busy([(9000, 100), (9000, 100)], [(9000, 100), (9000, 100)]) is None
    assert busy([], []) is None
