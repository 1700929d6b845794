"""The order in which a rank reads, warms up, times and examines."""

from __future__ import annotations

import pytest

from ddp_perf.core.gpu import GpuLoad
from ddp_perf.core.launch import LaunchRequest, Numerics, Unit, WarmUp
from ddp_perf.telemetry.sample import Sample
from ddp_perf.worker import measure
from ddp_perf.worker.injection.effects import Injected
from ddp_perf.worker.steps.protocol import StepFacts, follow_plan
from ddp_perf.worker.timing.timed_steps import Timed
from tests.builders import make_case
from tests.unit.worker.contexts import make_context


@pytest.fixture
def order(monkeypatch):
    """``order(tier)``: the calls of a rank on that tier in order, each replaced by a note."""
    done = []

    class Steps:
        collects_garbage = False
        unit = Unit()

        def step(self):
            done.append("step")

        def beat(self):
            pass

        def enter(self, phase):
            pass

    def noted(name, result):
        """Return a plan that notes its name when it begins, and asks for no step."""

        def plan(*arguments, **options):
            done.append(name)
            yield from ()
            return result

        return plan

    class Sampler:
        def __init__(self, cores, *, reads_rdma, **options):
            done.append("read")
            if reads_rdma:
                done.append("read RDMA")

        def read(self):
            done.append("begin")
            return sample(at_s=0.0)

        def read_after(self, before):
            done.append("end")
            return sample(at_s=1.0)

    def sample(at_s):
        return Sample(at_s=at_s, used_at_s=at_s, cpu_s=at_s, system_s=0.0)

    numerics = Numerics(
        matmul_precision="highest",
        convolution_tf32=False,
        cudnn_benchmark=False,
        allocator="native",
    )
    load = GpuLoad(sm_clock_mhz=1410)
    timed = Timed((0.1,) * 10, (0.1,) * 10, (), 0.2, load, (0.1,) * 2)
    for name, stand_in in (
        # A captured step is released for the examination.
        ("_build_steps", lambda *arguments: (Steps(), noted("examine", StepFacts())())),
        ("Sampler", Sampler),
        ("warm_up", noted("warm up", WarmUp(steps=30, steady=True, again=2, step_s=0.01))),
        ("timed_schedule", noted("time", timed)),
        ("timed_on_gpu", noted("time on GPU", timed)),
        ("profile_steps", noted("profile", None)),
        ("control_times_s", lambda device: done.append("control") or [0.1]),
        ("numerics", lambda: numerics),
    ):
        monkeypatch.setattr(measure, name, stand_in)

    def measured(tier, **changes):
        request = LaunchRequest(case=make_case(tier=tier, **changes), round=0)
        result = measure.measure(request, make_context())
        return done, result

    return measured


def test_measure_reads_before_the_warm_up_and_only_counters_after_it(order):
    done, result = order("gpu")

    warm = ["control", "read", "warm up", "begin", "time on GPU", "end"]
    assert done[: len(warm)] == warm
    assert result.host_bound is False  # the host was ahead by two steps
    assert result.load.sm_clock_mhz == 1410


@pytest.mark.parametrize(("nodes", "reads"), [(1, False), (2, True)])
def test_ports_for_rdma_are_read_between_nodes_only(order, nodes, reads):
    done, _ = order("gpu", world_size=2, nodes=nodes)

    assert ("read RDMA" in done) is reads


def test_measure_profiles_before_it_examines_the_steps(order):
    """With CUDA graphs the examined steps differ from the timed ones: the host launches them."""
    done, _ = order("gpu")

    assert done[done.index("end") :] == ["end", "control", "profile", "examine"]


def test_measure_on_a_cpu_has_no_extra_warm_up_and_no_pace(order):
    done, result = order("cpu")

    before = ["control", "read", "begin"]
    assert done == [*before, "time", "end", "control", "profile", "examine"]
    assert result.host_bound is None


def test_the_timed_steps_on_a_gpu_know_whether_further_ones_are_owed(order, monkeypatch):
    noted = []

    class NotedError(Exception):
        pass

    def timed(*arguments, owes_steps, **options):
        noted.append(owes_steps)
        yield from ()
        raise NotedError

    monkeypatch.setattr(measure, "timed_on_gpu", timed)
    request, context = LaunchRequest(case=make_case(tier="gpu"), round=0), make_context()
    injected = Injected((), context)
    steps, examination = measure._build_steps(request, context, injected)
    prepared = measure.Prepared(injected=injected, control_s=[0.1], owes_steps=True)
    plan = measure.measurement(request, context, steps, examination, prepared)

    with pytest.raises(NotedError):
        follow_plan(plan, steps.step)

    assert noted == [True]
