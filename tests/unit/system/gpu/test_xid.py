"""Errors of GPUs in the kernel's log."""

from __future__ import annotations

import pytest

from ddp_perf.system.gpu.gpus import find_xids

LOG = """\
6,338,5140800,-;usb 1-1: new device
4,339,5140900,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.
 SUBSYSTEM=pci
4,340,5140901,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.
4,341,5140902,-;NVRM: Xid (0000:86:00): 48
"""


def test_each_xid_is_reported_once_with_its_gpu(tmp_path):
    log = tmp_path / "kmsg"
    log.write_text(LOG * 50)  # more than one read

    assert find_xids(log) == [
        "Xid 79 of 0000:3b:00: pid=1234, GPU has fallen off the bus.",
        "Xid 48 of 0000:86:00",
    ]


@pytest.mark.parametrize("number", [13, 31, 43, 45])
def test_xids_of_an_application_are_left_out(number, tmp_path):
    log = tmp_path / "kmsg"
    record = "4,339,5140900,-;NVRM: Xid (PCI:0000:3b:00): {}, pid=1234, name=python\n"
    log.write_text(record.format(number) + record.format(94))

    assert find_xids(log) == ["Xid 94 of 0000:3b:00: pid=1234, name=python"]


def test_a_log_without_xids_or_without_access_gives_none(tmp_path):
    quiet = tmp_path / "kmsg"
    quiet.write_text("6,338,5140800,-;usb 1-1: new device\n")

    assert find_xids(quiet) == []
    assert find_xids(tmp_path / "missing") == []
    assert find_xids(tmp_path) == []


def test_the_log_of_this_machine_can_be_read():
    assert isinstance(find_xids(), list)
