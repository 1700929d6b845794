"""A case changed on the command line is another case, with its own id and fingerprint."""

from __future__ import annotations

import pytest

from ddp_perf.config.loading import Overrides, load_cases
from ddp_perf.errors import ConfigError

TWO_RANKS = "mlp-ddp-fp32-ws2-b64"


@pytest.fixture
def two_ranks(suite_file):
    """Return the suite's case of two ranks, with overrides and changes of its file."""

    def load(overrides, **changes):
        return load_cases([suite_file(**changes)], overrides)[1]

    return load


def test_an_override_of_the_work_changes_the_id(two_ranks):
    changed, plain = two_ranks(Overrides(env=(("A", "1"),))), two_ranks(Overrides())

    assert changed.id == f"{TWO_RANKS}-A=1"
    assert changed.work() == {**plain.work(), "env.A": "1"}


@pytest.mark.parametrize(
    "override",
    [
        pytest.param({"env": (("A", "1"),)}, id="env"),
        pytest.param({"world_sizes": (1, 2), "batch_sizes": (64,)}, id="matrix"),
    ],
)
def test_an_override_with_the_value_of_the_file_changes_nothing(two_ranks, override):
    file = {"env": {"A": "1"}}

    assert two_ranks(Overrides(**override), **file) == two_ranks(Overrides(), **file)


def test_steps_and_launches_do_not_change_the_case(two_ranks):
    changed = two_ranks(Overrides(steps=100, launches=9))

    assert (changed.schedule.steps, changed.schedule.launches) == (100, 9)
    assert changed.id == TWO_RANKS
    assert changed.work() == two_ranks(Overrides()).work()


def test_overridden_sizes_replace_the_matrix_of_the_file(suite_file):
    cases = load_cases([suite_file()], Overrides(world_sizes=(4, 1), batch_sizes=(8,)))

    assert [case.id for case in cases] == ["mlp-none-fp32-ws1-b8", "mlp-ddp-fp32-ws4-b8"]


def test_scaling_compares_cases_under_the_same_override(suite_file):
    one, two = load_cases([suite_file()], Overrides(env=(("A", "1"),)))

    assert one.id == two.single == "mlp-none-fp32-ws1-b64-A=1"


def test_several_values_of_one_variable_are_swept(suite_file):
    env = (("A", "1"), ("B", "x"), ("A", "2"), ("B", "y"))

    cases = load_cases([suite_file(world_sizes=[2])], Overrides(env=env))

    assert [case.env for case in cases] == [
        {"A": "1", "B": "x"},
        {"A": "1", "B": "y"},
        {"A": "2", "B": "x"},
        {"A": "2", "B": "y"},
    ]
    assert len({case.id for case in cases}) == 4


def test_a_sweep_over_the_files_own_value_keeps_its_id(suite_file):
    suite = suite_file(world_sizes=[2], env={"A": "1", "B": "x"})

    cases = load_cases([suite], Overrides(env=(("A", "1"), ("A", "2"))))

    assert [(case.id, case.env) for case in cases] == [
        (TWO_RANKS, {"A": "1", "B": "x"}),
        (f"{TWO_RANKS}-A=2", {"A": "2", "B": "x"}),
    ]


def test_one_value_given_twice_is_refused(suite_file):
    with pytest.raises(ConfigError, match="--ddp-env A=1: it is given twice"):
        load_cases([suite_file(world_sizes=[2])], Overrides(env=(("A", "1"), ("A", "1"))))


def test_an_override_must_leave_steps_to_measure(suite_file):
    path = suite_file()

    with pytest.raises(ConfigError, match="leave nothing to measure; --ddp-steps") as caught:
        load_cases([path], Overrides(steps=2))

    assert str(caught.value).startswith(f"{path}: ")


def test_a_data_folder_changes_the_cases_of_text_suites(suite_file):
    """Real texts and random ones are never compared, whatever their folder is."""
    path = suite_file(workload="text_transformer", model={})

    synthetic, real = (load_cases([path], Overrides(files=files))[1] for files in (False, True))

    assert real.id == f"{synthetic.id}-data=files"
    assert real.work() == {**synthetic.work(), "data.source": "files"}


def test_a_data_folder_does_not_change_other_suites(two_ranks):
    assert two_ranks(Overrides(files=True)) == two_ranks(Overrides())


def test_data_files_are_refused_for_a_workload_that_reads_none(suite_file):
    with pytest.raises(ConfigError, match=r"data\.source: only distilbert, text_transformer read"):
        load_cases([suite_file(data={"source": "files"})], Overrides())


def test_the_data_folder_is_refused_in_env(suite_file):
    overrides = Overrides(env=(("DDP_PERF_DATA", "/data"),))

    with pytest.raises(ConfigError, match=r"env\.DDP_PERF_DATA: set it in the environment"):
        load_cases([suite_file()], overrides)


def test_a_variable_with_a_secret_is_refused_without_its_value(suite_file):
    overrides = Overrides(env=(("NCCL_DEBUG", "INFO"), ("HF_TOKEN", "hf_1234")))

    with pytest.raises(ConfigError, match=r"env\.HF_TOKEN: .*; export HF_TOKEN where") as caught:
        load_cases([suite_file()], overrides)

    assert "hf_1234" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"env\.WANDB_API_KEY"):
        load_cases([suite_file(env={"WANDB_API_KEY": "1234"})], Overrides())


def test_a_variable_that_only_changes_what_is_logged_is_no_other_work(suite_file):
    (logged,) = load_cases(
        [suite_file(world_sizes=[2])], Overrides(env=(("NCCL_DEBUG", "INFO"), ("A", "1")))
    )
    (other,) = load_cases([suite_file(world_sizes=[2])], Overrides(env=(("A", "1"),)))

    assert logged.env == {"NCCL_DEBUG": "INFO", "A": "1"}
    assert (logged.id, logged.work()) == (other.id, other.work())


def test_two_values_of_a_variable_that_only_changes_what_is_logged_are_refused(suite_file):
    env = (("NCCL_DEBUG", "INFO"), ("NCCL_DEBUG", "WARN"))

    with pytest.raises(ConfigError, match="--ddp-env NCCL_DEBUG: it only changes what is logged"):
        load_cases([suite_file()], Overrides(env=env))


def test_a_variable_that_logs_each_call_is_other_work(suite_file):
    env = (("NCCL_DEBUG_SUBSYS", "TUNING"),)
    (case,) = load_cases([suite_file(world_sizes=[2])], Overrides(env=env))

    assert case.work()["env.NCCL_DEBUG_SUBSYS"] == "TUNING"
    assert case.id.endswith("-NCCL_DEBUG_SUBSYS=TUNING")
