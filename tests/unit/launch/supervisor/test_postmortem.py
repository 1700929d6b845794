"""The rank that a failure names, from the remains of all ranks."""

from __future__ import annotations

import signal

import msgspec
import pytest

from ddp_perf.core.launch import LaunchRequest
from ddp_perf.core.subject import ScriptRun
from ddp_perf.launch.supervisor import postmortem
from ddp_perf.launch.supervisor.postmortem import (
    check_agreement,
    describe_failure,
    describe_hang,
    hung_examination,
)
from ddp_perf.worker.report import Phase, RankError, RankFiles, RankProgress
from tests.builders import make_case, make_placement, make_rank_result

TWO_RANKS = LaunchRequest(case=make_case(), round=3)


class EndedRank:
    """The state of an ended rank, as the supervisor has it."""

    def __init__(self, directory, rank, *, report=None, exit_code=0, ended_at=1.0):
        self.files = RankFiles(directory=directory, rank=rank)
        self.rank, self.report, self.exit_code = rank, report, exit_code
        self.ended_at = ended_at
        self.failed = True
        self.is_symptom = isinstance(report, RankError) and report.peer_lost


def error(at, *, peer_lost=False, detail="ValueError: no", exit_code=None):
    return RankError(
        detail=detail,
        traceback="Traceback …",
        user_frames="  File …",
        at=at,
        peer_lost=peer_lost,
        exit_code=exit_code,
    )


@pytest.fixture
def blamed(tmp_path):
    """``blamed(rank0, rank1)``: the failure of ranks that ended in these ways."""

    def describe(*ends):
        ranks = [EndedRank(tmp_path, rank, **end) for rank, end in enumerate(ends)]
        return describe_failure(TWO_RANKS, ranks)

    return describe


def test_the_failure_names_the_rank_that_failed_first(blamed):
    failure = blamed({"report": error(2.0)}, {"report": error(1.0, detail="OSError: first")})

    assert (failure.rank, failure.kind, failure.detail) == (1, "exception", "OSError: first")
    assert (failure.traceback, failure.user_frames) == ("Traceback …", "  File …")
    assert (failure.case_id, failure.round) == (TWO_RANKS.case.id, 3)


def test_a_script_that_needs_a_gpu_is_told_from_one_that_fails(blamed):
    report = msgspec.structs.replace(error(1.0, detail="train.py uses CUDA"), needs_gpu=True)

    failure = blamed({"report": report})

    assert (failure.kind, failure.detail) == ("needs_gpu", "train.py uses CUDA")


def test_a_rank_that_lost_its_peer_is_not_named_even_if_it_reported_first(blamed):
    lost = {"report": error(1.0, peer_lost=True)}

    failure = blamed(lost, {"exit_code": -signal.SIGKILL, "ended_at": 2.0})

    assert (failure.rank, failure.kind) == (1, "signal")


@pytest.mark.parametrize(
    ("end", "kind", "said"),
    [
        ({"exit_code": -signal.SIGSEGV}, "signal", "killed by SIGSEGV"),
        ({"exit_code": -signal.SIGKILL}, "signal", "killed by SIGKILL (out of memory?"),
        ({"exit_code": 3}, "exit", "exited with code 3"),
        ({"exit_code": None}, "exit", "ended without a result, and the kernel has not"),
        ({"exit_code": 0}, "exit", "exited with code 0 before it delivered a result"),
        ({"report": error(1.0, exit_code=3)}, "exit", "exited with code 3"),
    ],
    ids=["crash", "killed", "os._exit(3)", "not reaped", "exit without result", "sys.exit(3)"],
)
def test_the_failure_describes_how_the_rank_ended(blamed, end, kind, said):
    failure = blamed(end)

    assert failure.kind == kind
    assert failure.detail.startswith(said)


def test_the_failure_contains_the_last_lines_of_output(blamed, tmp_path):
    lines = [f"line {number}" for number in range(50)]
    RankFiles(directory=tmp_path, rank=0).output.write_text("\n".join(lines))

    assert blamed({"exit_code": 1}).output.splitlines() == lines[-20:]


def test_an_aborted_rank_is_named_with_the_exception_that_nobody_caught(blamed, tmp_path):
    printed = "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n"
    printed += "  what():  op.preamble.length <= op.nbytes. 340 vs 8\n"
    RankFiles(directory=tmp_path, rank=0).output.write_text(printed)

    failure = blamed({"exit_code": -signal.SIGABRT})

    assert failure.detail == "killed by SIGABRT: op.preamble.length <= op.nbytes. 340 vs 8"


def test_an_aborted_rank_that_printed_no_cause_is_named_with_its_signal(blamed):
    assert blamed({"exit_code": -signal.SIGABRT}).detail == "killed by SIGABRT"


def disagreement(tier, *ranks, shared_gpu=False):
    """Return the result of check_agreement for ranks given as (digest, device id)."""
    results = [
        make_rank_result(digest=digest, placement=make_placement(rank, device_id=device))
        for rank, (digest, device) in enumerate(ranks)
    ]
    case = make_case(tier=tier, world_size=len(ranks))
    return check_agreement(LaunchRequest(case=case, round=0, shared_gpu=shared_gpu), results)


@pytest.mark.parametrize("tier", ["cpu", "gpu"])
def test_ranks_that_agree_give_no_failure(tier):
    assert disagreement(tier, (7, "GPU-a"), (7, "GPU-b")) is None


def test_two_ranks_on_one_gpu_are_a_failure_with_the_remedy():
    failure = disagreement("gpu", (7, "GPU-a"), (7, "GPU-b"), (7, "GPU-b"))

    assert failure.kind == "disagreement"
    assert failure.rank in (1, 2)
    assert "shares its GPU" in failure.detail
    assert "CUDA_VISIBLE_DEVICES" in failure.detail


def test_ranks_of_a_script_that_disagree_have_the_remedy():
    request = LaunchRequest(case=make_case(script=make_script()), round=0)
    results = [make_rank_result(0), make_rank_result(1, digest=43)]

    failure = check_agreement(request, results)

    assert failure.detail == (
        "parameters differ from the other ranks' after the last step; let all ranks begin with the"
        " same ones, and average every gradient"
    )


def test_ranks_of_the_cpu_tier_may_share_cores():
    assert disagreement("cpu", (7, "cores 0"), (7, "cores 0")) is None


def test_the_rank_whose_parameters_differ_from_the_majority_is_named():
    failure = disagreement("cpu", (7, "0"), (8, "1"), (7, "2"))

    assert (failure.kind, failure.rank) == ("disagreement", 1)
    assert "parameters differ" in failure.detail


def test_no_rank_is_named_if_two_ranks_disagree():
    assert disagreement("cpu", (7, "0"), (8, "1")).rank is None


def test_ranks_may_share_a_gpu_if_the_request_says_so():
    assert disagreement("gpu", (7, "GPU-a"), (7, "GPU-a"), shared_gpu=True) is None


def test_ranks_that_share_a_gpu_must_have_the_same_parameters():
    failure = disagreement("gpu", (7, "GPU-a"), (8, "GPU-a"), shared_gpu=True)

    assert "parameters differ" in failure.detail


class HungRank:
    """The state of a running rank, in a phase and with a number of beats in it."""

    running = True

    def __init__(self, directory, rank, phase, phase_beats=0, *, stopped=False):
        self.files = RankFiles(directory=directory, rank=rank)
        self.files.stacks.write_text("its stack")
        self.rank, self.pid = rank, 1000 + rank
        beats = phase_beats + 50 * (phase > Phase.START)
        self.progress = RankProgress(beats=beats, phase=phase, phase_beats=phase_beats)
        self.state = "T" if stopped else "S"
        self.recorder = Deaf()


class Deaf:
    def send_bytes(self, question):
        raise BrokenPipeError


def make_script(**changes):
    return ScriptRun(**{"script": "train.py", "args": (), "samples": 4, **changes})


@pytest.fixture
def hang(tmp_path, monkeypatch):
    """``hang(tier, (phase, beats), …)``: the failure of ranks that hang there.

    ``by``: another description of them.
    """

    def describe(tier, *places, stopped=(), by=describe_hang, **case_fields):
        ranks = [
            HungRank(tmp_path, rank, *place, stopped=rank in stopped)
            for rank, place in enumerate(places)
        ]
        states = {rank.pid: rank.state for rank in ranks}
        monkeypatch.setattr(postmortem, "state_of", states.get)
        monkeypatch.setattr("os.kill", lambda pid, number: None)
        case = make_case(tier=tier, world_size=len(ranks), **case_fields)  # of 12 steps
        return by(LaunchRequest(case=case, round=0), ranks)

    return describe


def test_a_hang_names_the_rank_that_the_others_wait_for(hang):
    failure = hang("cpu", (Phase.TIMED, 15), (Phase.TIMED, 14))

    assert (failure.kind, failure.rank) == ("hang", 1)
    assert failure.detail == "hung in step 8 of 12: the process is sleeping (S)"


@pytest.mark.parametrize("tier", ["cpu", "gpu"])
def test_a_hang_names_no_rank_if_all_stopped_at_the_same_place(hang, tier):
    failure = hang(tier, *[(Phase.TIMED, 15)] * 3)

    assert failure.rank is None
    assert failure.detail.endswith(": all ranks stopped there, so no rank is named")
    assert "step 8 of 12" in failure.detail
    assert set(failure.stacks) == {"rank 0", "rank 1", "rank 2"}


def test_a_hang_lists_the_ranks_that_are_equally_far_behind(hang):
    failure = hang("cpu", (Phase.TIMED, 14), (Phase.TIMED, 15), (Phase.TIMED, 14))

    assert failure.rank is None
    assert failure.detail == "hung in step 8 of 12: ranks 0, 2 stopped there, the others later"


def test_a_hang_names_a_single_rank(hang):
    assert hang("gpu", (Phase.TIMED, 15)).rank == 0


def test_a_hang_names_a_stopped_rank_even_if_it_is_ahead(hang):
    failure = hang("cpu", (Phase.TIMED, 14), (Phase.TIMED, 15), stopped=[1])

    assert failure.rank == 1
    assert "stopped (T)" in failure.detail


def test_a_hang_after_the_timed_steps_names_its_rank_and_what_that_does(hang):
    places = [(Phase.AFTER, 7), (Phase.AFTER, 6), (Phase.AFTER, 7)]
    behind, why = hang("cpu", *places, by=hung_examination)

    assert [rank.rank for rank in behind] == [1]
    assert why == (
        "hung after the timed steps, while it measured further steps: the process is sleeping (S)"
    )


def test_hosts_of_gpus_are_compared_by_whole_steps(hang):
    """Their queues become full at different places of a step."""
    assert hang("gpu", (Phase.TIMED, 14), (Phase.TIMED, 15)).rank is None
    assert hang("gpu", (Phase.TIMED, 13), (Phase.TIMED, 14)).rank == 0


@pytest.mark.parametrize(
    ("tier", "place", "said"),
    [
        ("cpu", (Phase.START, 0), "before its first timed step"),
        ("gpu", (Phase.START, 22), "before its first timed step"),
        ("gpu", (Phase.WARM_UP, 62), "during the warm-up, before its first timed step"),
        ("cpu", (Phase.TIMED, 0), "in step 1 of 12"),
        ("cpu", (Phase.TIMED, 23), "in step 12 of 12"),
        ("gpu", (Phase.TIMED, 2), "while the host queued step 2 of 12, which the GPU may not have"),
        ("gpu", (Phase.FOLLOWED, 0), "before step 1 of 12"),
        ("gpu", (Phase.FOLLOWED, 1), "in step 1 of 12"),
        ("gpu", (Phase.FOLLOWED, 12), "in step 12 of 12"),
        ("gpu", (Phase.AFTER, 9), "after the timed steps, while it measured further steps"),
    ],
)
def test_a_hang_states_the_phase_and_the_step_if_known(hang, tier, place, said):
    assert hang(tier, place).detail.startswith(f"hung {said}")


@pytest.mark.parametrize(
    ("steps_by", "place", "said"),
    [
        (
            "optimizer",
            (Phase.START, 0),
            "hung before its first step (no optimizer stepped in 120 s): the process is sleeping"
            " (S); raise start_deadline_s, or name the function that ends a step: steps_by:"
            " module:function",
        ),
        (
            "engine:finish",
            (Phase.START, 1),
            "hung before its first step (engine:finish did not return in 120 s): the process is"
            " sleeping (S); raise start_deadline_s, or let steps_by name the function that ends a"
            " step",
        ),
        (
            "optimizer",
            (Phase.START, 2),
            "hung before its first timed step: the process is sleeping (S); if it evaluates or"
            " saves there, raise step_deadline_s",
        ),
    ],
)
def test_a_hang_of_a_script_states_what_it_waited_for(hang, steps_by, place, said):
    assert hang("cpu", place, script=make_script(steps_by=steps_by)).detail == said
