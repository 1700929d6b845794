"""Two hosts with a link of a known rate, on one machine: servers on both start ranks.

The link is a veth pair between two network namespaces. A token bucket lets its bytes pass at a
rate, so what a step sends takes at least as long as bytes ÷ rate says.
"""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import sys

import msgspec
import pytest

from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult, RankConditions
from ddp_perf.core.measurement import Measurement
from ddp_perf.launch.engines.hosts import Hosts
from ddp_perf.launch.server_launcher import ServerLauncher
from ddp_perf.scaling.curves import measured_series
from ddp_perf.scaling.prediction import PredictRequest, predict_all
from ddp_perf.stats.link import Link, Topology
from tests.builders import make_cases, make_request, make_result
from tests.projects import REPOSITORY
from tests.system.conftest import WORKLOADS
from tests.system.two_hosts import MBIT, obstacle, two_hosts

pytestmark = pytest.mark.slow

FAST, SLOW = 10_000 * MBIT, 1_000 * MBIT
WIDE = {"input_dim": 2048, "hidden_dim": 2048, "output_dim": 4, "num_layers": 2}
WIDE_BYTES = 4 * (2048 * 2048 + 2048 + 4 * 2048 + 4)
# Ranks that compute by sleeping: four of them share the cores of this machine, so their bytes are
# few, and the links slow.
BETWEEN, LATENCY = 50 * MBIT, 50e-6
SLEEP = 0.06
SLEEPING_BYTES = 4 * (512 * 512 + 512 + 4 * 512 + 4)
FEW = {"steps": 9, "warmup": 3}
ATTEMPTS, MANY = 4, 40  # launches, and the steps of each further one


@pytest.fixture(scope="module")
def hosts():
    if (reason := obstacle()) is not None:
        pytest.skip(reason)
    with two_hosts() as hosts:
        yield hosts


@pytest.fixture(scope="module")
def on_hosts(hosts):
    """A launcher on as many of the hosts as a case has nodes."""
    endpoint = f"{hosts.addresses[0]}:29400"
    engine = Hosts(hosts.names, node_shell=hosts.shell, endpoint=endpoint)
    with contextlib.closing(ServerLauncher(engine)) as launcher:
        yield launcher


@pytest.fixture(scope="module")
def measured(hosts, on_hosts):
    """A function that measures a case on the hosts at a rate of their link, each pair once.

    ``again``: it launches the case once more, for many steps, and keeps the launch with the
    fastest step.
    """
    found: dict[tuple[float, float | None, str], LaunchResult] = {}

    def measure(case, rate, within=None, *, again=False):
        key = rate, within, case.id
        if again or key not in found:
            hosts.limit(rate, within=within)
            schedule = (
                msgspec.structs.replace(case.schedule, steps=MANY) if again else case.schedule
            )
            launched = msgspec.structs.replace(case, schedule=schedule)
            request = LaunchRequest(case=launched, round=0, import_paths=(str(WORKLOADS),))
            outcome = on_hosts.launch(request)
            assert isinstance(outcome, LaunchResult), str(outcome)
            found[key] = min(found.get(key, outcome), outcome, key=lambda one: min(one.step_s))
        return found[key]

    return measure


def least_steps(measured, links, holds):
    """Return the fastest step of each case over its link.

    Other processes only add to a step. So all are launched again, some times, while the fastest
    ones are not as expected.
    """
    for attempt in range(ATTEMPTS):
        steps_s = [min(measured(*link, again=attempt > 0).step_s) for link in links]
        if holds(*steps_s):
            break
    return steps_s


def wide_case(*, ranks_per_node=1, **changes):
    """Two ranks with gradients of 16.8 MB, on two hosts."""
    suite = {"world_sizes": [2], "batch_sizes": [4], "model": WIDE, **FEW}
    (case,) = make_cases(ranks_per_node=ranks_per_node, **{**suite, **changes})
    return case


def sleeping_cases(*world_sizes, **changes):
    """Ranks that compute by sleeping, two on each host: none of four has a core of its own."""
    return make_cases(
        workload="sleeping:build",
        model={"seconds": SLEEP, "width": 512},
        world_sizes=list(world_sizes),
        batch_sizes=[1],
        ranks_per_node=2,
        **FEW,
        **changes,
    )


def of_one_step(launch, step_s):
    """Return the launch with this step alone, as if nothing had computed beside it."""
    quiet = {"step_s": (step_s,), "conditions": RankConditions(), "waited_s": ()}
    ranks = [msgspec.structs.replace(rank, **quiet) for rank in launch.ranks]
    return msgspec.structs.replace(launch, ranks=tuple(ranks))


def shown(what, measured_s, expected_s):
    """Print a time beside what the link's rate predicts."""
    print(f"{what:52} {1e3 * measured_s:6.1f} ms, predicted {1e3 * expected_s:6.1f} ms")


def test_a_step_on_two_hosts_is_that_of_two_ranks_on_one(measured, launcher, hosts):
    case = wide_case(ranks_per_node=None)
    alone = launcher.launch(LaunchRequest(case=case, round=0))
    apart = measured(wide_case(), FAST)

    assert wide_case().id == case.id.replace("ws2", "ws2-2x1")
    assert apart.ranks[0].structure == alone.ranks[0].structure
    # A launch on busy cores has more steps, and so may have the loss of one more.
    both = alone.losses.keys() & apart.losses.keys()
    assert {"1", "8"} <= both
    assert [apart.losses[step] for step in both] == pytest.approx([alone.losses[s] for s in both])
    places = [(rank.placement.node, rank.placement.host) for rank in apart.ranks]
    assert sorted(places) == places
    assert {host for _, host in places} == set(hosts.names)


def test_exposed_communication_grows_as_bytes_over_the_rate_of_the_link(measured):
    expected = WIDE_BYTES / SLOW - WIDE_BYTES / FAST

    def as_expected(fast, slow):
        return 0.8 < (slow - fast) / expected < 1.3

    links = [(wide_case(), FAST), (wide_case(), SLOW)]
    fast, slow = least_steps(measured, links, as_expected)

    shown("step at 1 Gbit/s − step at 10 Gbit/s", slow - fast, expected)
    assert slow > WIDE_BYTES / SLOW
    assert as_expected(fast, slow)


def test_a_hook_of_half_the_bytes_saves_half_of_the_time_on_the_link(measured):
    half_case = wide_case(comm_hooks=[{"kind": "fp16"}])
    expected = WIDE_BYTES / 2 / SLOW

    def as_expected(plain, half):
        return 0.7 < (plain - half) / expected < 1.3

    links = [(wide_case(), SLOW), (half_case, SLOW)]
    plain, half = least_steps(measured, links, as_expected)

    shown("step at 1 Gbit/s − with hook fp16", plain - half, expected)
    assert half > expected
    assert as_expected(plain, half)


def test_a_hierarchical_all_reduce_sends_less_over_the_link_than_a_ring(measured):
    """A ring of 2 × 2 ranks sends 1.5 × the bytes in each direction, the hierarchical one 1 ×."""
    (ring_case,) = sleeping_cases(4)
    (hook_case,) = sleeping_cases(4, comm_hooks=[{"kind": "hierarchical", "group_size": "node"}])
    within = 8 * BETWEEN
    links = [(case, BETWEEN, 2 * within) for case in (ring_case, hook_case)]
    ring, hook = least_steps(measured, links, lambda ring, hook: hook < ring)

    saved = 0.5 * SLEEPING_BYTES / BETWEEN - SLEEPING_BYTES / within
    shown("2 × 2 ranks at 50 Mbit/s: ring − hierarchical", ring - hook, saved)
    assert ring > 1.5 * SLEEPING_BYTES / BETWEEN
    assert hook > SLEEPING_BYTES / BETWEEN
    assert hook < ring


def test_a_fit_on_one_host_predicts_two_within_its_band(measured):
    """Both ranks of a host send over its loopback, so that each has half of its rate."""
    within = 1.4 * BETWEEN
    topology = Topology(
        gpus_per_node=2,
        intra=Link(latency_s=LATENCY, bytes_per_s=within),
        inter=Link(latency_s=LATENCY, bytes_per_s=BETWEEN),
    )
    request = PredictRequest(world_sizes=(4,), fit_world_sizes=(1, 2), topology=topology)
    cases = sleeping_cases(1, 2, 4)

    def predicted(*steps_s):
        measurements = [
            Measurement(
                case=case,
                launches=(of_one_step(measured(case, BETWEEN, 2 * within), step_s),),
                failures=(),
            )
            for case, step_s in zip(cases, steps_s, strict=True)
        ]
        (curve,) = measured_series(make_result(measurements))
        (prediction,) = predict_all([curve], request)
        return next(step for step in prediction.steps if step.world_size == 4)

    def in_band(*steps_s):
        step = predicted(*steps_s)
        return step.step_s.low < step.given_s < step.step_s.high

    steps_s = least_steps(measured, [(case, BETWEEN, 2 * within) for case in cases], in_band)
    band, given_s = predicted(*steps_s).step_s, predicted(*steps_s).given_s
    ends = f"{1e3 * band.low:.0f} to {1e3 * band.high:.0f} ms"
    shown(f"2 × 2 ranks at 50 Mbit/s, from one host ({ends})", given_s, band.value)
    assert band.low < given_s < band.high


def test_ranks_whose_launcher_states_no_nodes_find_each_other_on_two_hosts(hosts, monkeypatch):
    """As srun and mpirun start them: with RANK, WORLD_SIZE and MASTER_ADDR alone."""
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    hosts.limit(FAST)
    module = f"{shlex.quote(sys.executable)} -m ddp_perf.bench --device=cpu --epochs=1"
    small = "--steps-per-epoch=6 --warmup-steps=2 --batch-size=8 --hidden-dim=64"
    variables = f"LOCAL_RANK=0 WORLD_SIZE=2 MASTER_ADDR={hosts.addresses[0]} MASTER_PORT=29411"
    ranks = [
        subprocess.Popen(
            [
                *shlex.split(hosts.shell.format(node=name)),
                f"{variables} RANK={rank} {module} {small}",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank, name in enumerate(hosts.names)
    ]
    try:
        outputs = [rank.communicate(timeout=180)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()

    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    for node, name in enumerate(hosts.names):
        assert f"node {node} ({name})" in outputs[0]


def test_a_cut_link_ends_the_launch_in_its_deadline_and_names_the_node(hosts, on_hosts):
    """This is the last test of the hosts: it leaves their link cut."""
    request = make_request(
        "cut_off:build",
        WORKLOADS,
        model={"interface": "cable"},
        step_deadline_s=5,
        ranks_per_node=1,
    )
    outcome = on_hosts.launch(request)

    assert isinstance(outcome, LaunchFailure)
    assert outcome.node == hosts.names[1]
    assert "does not reach" in outcome.detail
    assert len(hosts.processes()) == 2  # a warm server each, and no rank
