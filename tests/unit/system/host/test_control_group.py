"""Control groups of both versions, on a host, in slices and in containers."""

from __future__ import annotations

import pytest

from ddp_perf.system.host.control_group import (
    CpuUse,
    cpu_quota,
    group_directories,
    memory_limit,
    read_cpu_use,
    read_memory_stall_s,
)

V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
V2_STAT = """\
usage_usec 2500000
user_usec 2000000
system_usec 500000
nr_periods 40
nr_throttled 10
throttled_usec 1500000
"""
V1_MOUNTS = """\
31 23 0:28 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755
33 31 0:30 {root} /sys/fs/cgroup/cpu,cpuacct ro,nosuid - cgroup cgroup rw,cpu,cpuacct
38 31 0:35 {root} /sys/fs/cgroup/memory ro,nosuid - cgroup cgroup rw,memory
"""
V1_FILES = {
    "cpu.stat": "nr_periods 40\nnr_throttled 10\nthrottled_time 1500000000\n",
    "cpuacct.usage": "2500000000\n",
}
PRESSURE = """\
some avg10=1.00 avg60=0.50 avg300=0.10 total={some}
full avg10=0.00 avg60=0.00 avg300=0.00 total=7
"""
USE = CpuUse(used=2.5, throttled=1.5)


@pytest.fixture
def machine(tmp_path):
    """``machine({path: text, …})`` writes files of a machine and returns its root."""

    def write(files):
        for name, text in files.items():
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return tmp_path

    return write


def group_files(groups, mounts):
    return {"proc/self/cgroup": groups, "proc/self/mountinfo": mounts}


def in_groups(root, uses):
    """Return the uses by directory below /sys/fs/cgroup."""
    top = root / "sys/fs/cgroup"
    return {str(group.relative_to(top)): use for group, use in uses.items()}


def test_version_2_reads_the_own_group_and_every_group_above_it(machine):
    root = machine(
        {
            **group_files("0::/ci.slice/runner.scope\n", V2_MOUNT),
            "sys/fs/cgroup/cpu.stat": "usage_usec 9000000\n",  # the root: nothing above it
            "sys/fs/cgroup/ci.slice/cpu.stat": V2_STAT,
            "sys/fs/cgroup/ci.slice/runner.scope/cpu.stat": "usage_usec 2500000\n",
        }
    )

    assert in_groups(root, read_cpu_use(root)) == {"ci.slice": USE}


def test_a_container_with_version_2_is_its_own_root(machine):
    files = group_files("0::/\n", V2_MOUNT)

    root = machine({**files, "sys/fs/cgroup/cpu.stat": V2_STAT})

    assert in_groups(root, read_cpu_use(root)) == {".": USE}


@pytest.mark.parametrize(
    ("path", "mounted", "directory"),
    [
        pytest.param("/", "/", ".", id="host"),
        pytest.param("/user.slice", "/", "user.slice", id="slice"),
        pytest.param("/docker/5f3a", "/docker/5f3a", ".", id="container"),
        pytest.param("/docker/5f3a/job", "/docker/5f3a", "job", id="group in a container"),
        pytest.param("/elsewhere", "/docker/5f3a", ".", id="group outside of the container"),
        pytest.param("/../job", "/", ".", id="group above the container"),
    ],
)
def test_version_1_is_read_at_its_mount_point(machine, path, mounted, directory):
    groups = f"11:memory:{path}\n4:cpu,cpuacct:{path}\n1:name=systemd:/\n"
    files = {f"sys/fs/cgroup/cpu,cpuacct/{directory}/{name}": V1_FILES[name] for name in V1_FILES}

    root = machine({**group_files(groups, V1_MOUNTS.format(root=mounted)), **files})

    top = root / "sys/fs/cgroup/cpu,cpuacct"
    assert read_cpu_use(root) == {top / directory: USE}


def test_version_1_may_mount_each_controller_separately(machine):
    mounts = """\
32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
33 31 0:30 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
"""
    files = group_files("2:cpuacct:/job\n1:cpu:/job\n0::/\n", mounts)
    files |= {
        "sys/fs/cgroup/cpu/job/cpu.stat": V1_FILES["cpu.stat"],
        "sys/fs/cgroup/cpuacct/job/cpuacct.usage": V1_FILES["cpuacct.usage"],
        "sys/fs/cgroup/unified/cpu.stat": V2_STAT,  # not where this machine keeps its quotas
    }
    root = machine(files)

    assert in_groups(root, read_cpu_use(root)) == {"cpu/job": USE}


def test_the_own_group_comes_first(machine):
    root = machine(group_files("0::/a/b\n", V2_MOUNT))

    top = root / "sys/fs/cgroup"
    assert group_directories("", root) == [top / "a/b", top / "a", top]


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({}, id="no control groups"),
        pytest.param(group_files("0::/\n", ""), id="not mounted"),
        pytest.param(group_files("", V2_MOUNT), id="no group"),
        pytest.param(group_files("0::/gone\n", V2_MOUNT), id="no such directory"),
        pytest.param(
            {**group_files("4:cpu:/\n", V1_MOUNTS.format(root="/")),
             "sys/fs/cgroup/cpu,cpuacct/cpu.stat": V1_FILES["cpu.stat"]},
            id="throttled, of nobody knows how much",
        ),
    ],
)  # fmt: skip
def test_counters_that_are_missing_are_unknown_and_not_zero(machine, files):
    root = machine(files)

    assert read_cpu_use(root) == {}
    assert read_memory_stall_s(root) is None


def test_the_memory_stall_is_read_from_the_own_group(machine):
    root = machine(
        {
            **group_files("0::/job\n", V2_MOUNT),
            "sys/fs/cgroup/job/memory.pressure": PRESSURE.format(some=1_500_000),
            "proc/pressure/memory": PRESSURE.format(some=9_000_000),
        }
    )

    assert read_memory_stall_s(root) == 1.5


def test_the_memory_stall_is_read_from_the_machine_if_groups_have_none(machine):
    root = machine(
        {
            **group_files("0::/job\n", V2_MOUNT),
            "proc/pressure/memory": PRESSURE.format(some=9_000_000),
        }
    )

    assert read_memory_stall_s(root) == 9.0


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "400000 100000\n", "job/cpu.max": "max 100000\n"}, 4.0),
        ({"cpu.max": "400000 100000\n", "job/cpu.max": "100000 50000\n"}, 2.0),
        ({}, None),
    ],
    ids=["container", "no limit", "above", "both", "no controller"],
)
def test_the_lowest_quota_of_version_2_is_given_in_cores(machine, files, quota):
    files = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}

    assert cpu_quota(machine({**group_files("0::/job\n", V2_MOUNT), **files})) == quota


@pytest.mark.parametrize(
    ("us", "quota"), [("400000\n", 4.0), ("-1\n", None)], ids=["limit", "no limit"]
)
def test_a_quota_of_version_1_is_given_in_cores(machine, us, quota):
    root = machine(
        {
            **group_files("4:cpu,cpuacct:/\n", V1_MOUNTS.format(root="/")),
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": us,
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        }
    )

    assert cpu_quota(root) == quota


MEMINFO = {"proc/meminfo": "MemTotal:       8388608 kB\nMemFree:  12 kB\n"}


@pytest.mark.parametrize(
    ("files", "gib"),
    [
        ({"job/memory.max": f"{4 * 2**30}\n", "job/memory.high": "max\n", **MEMINFO}, 4),
        ({"job/memory.max": f"{4 * 2**30}\n", "job/memory.high": f"{3 * 2**30}\n"}, 3),
        ({"job/memory.max": "max\n", "memory.max": f"{2 * 2**30}\n", **MEMINFO}, 2),
        ({"job/memory.max": f"{16 * 2**30}\n", **MEMINFO}, 8),
        (MEMINFO, 8),
        ({}, None),
    ],
    ids=["own", "high", "above", "machine is smaller", "machine", "unknown"],
)
def test_the_memory_limit_is_the_lowest_of_groups_and_machine(machine, files, gib):
    files = {
        name if name in MEMINFO else f"sys/fs/cgroup/{name}": text for name, text in files.items()
    }

    found = memory_limit(machine({**group_files("0::/job\n", V2_MOUNT), **files}))

    assert found == (None if gib is None else gib * 2**30)
