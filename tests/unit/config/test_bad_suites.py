"""An error in a suite file is reported in one line with file, field and remedy."""

from __future__ import annotations

import pytest

from ddp_perf.config.loading import Overrides, load_cases
from ddp_perf.errors import ConfigError
from tests.unit.config.refusals import refusal


@pytest.mark.parametrize(
    ("change", "field", "nearest"),
    [
        pytest.param({"step": 3}, "step", "steps", id="top level"),
        pytest.param({"world_size": [1]}, "world_size", "world_sizes", id="singular"),
        pytest.param({"ddp": {"bucket_cap": 3}}, "ddp.bucket_cap", "bucket_cap_mb", id="ddp"),
        pytest.param({"model": {"hiden_dim": 3}}, "model.hiden_dim", "hidden_dim", id="model"),
        pytest.param(
            {"tolerances": {"steptime": 0.1}}, "tolerances.steptime", "step_time", id="tolerances"
        ),
    ],
)
def test_a_misspelt_field_is_refused_with_the_nearest_name(suite_file, change, field, nearest):
    message = refusal(suite_file(**change))

    assert message == f"{field}: unknown field; did you mean {nearest!r}?"


def test_an_unknown_field_like_no_other_is_refused_with_the_list_of_fields(suite_file):
    message = refusal(suite_file(ddp={"zzz": 1}))

    assert message.startswith("ddp.zzz: unknown field; there are: ")
    assert "bucket_cap_mb, " in message


@pytest.mark.parametrize("field", ["suite", "tier", "workload", "world_sizes", "batch_sizes"])
def test_a_missing_field_is_named(suite_file, field):
    assert refusal(suite_file(**{field: ...})) == f"{field}: required, but missing"


@pytest.mark.parametrize(
    ("change", "field", "wanted"),
    [
        pytest.param({"steps": "many"}, "steps", "a whole number", id="text for a number"),
        pytest.param({"steps": 60.5}, "steps", "a whole number", id="fraction for a count"),
        pytest.param({"steps": True}, "steps", "a whole number", id="truth for a number"),
        pytest.param({"world_sizes": 2}, "world_sizes", "a list", id="number for a list"),
        pytest.param(
            {"ddp": {"static_graph": 1}}, "ddp.static_graph", "true or false", id="1 for true"
        ),
        pytest.param(
            {"model": {"hidden_dim": "x"}}, "model.hidden_dim", "a whole number", id="model"
        ),
        pytest.param({"model": 3}, "model", "a table of fields", id="number for a mapping"),
        pytest.param({"steps": None}, "steps", "a whole number", id="null"),
    ],
)
def test_a_wrong_type_is_refused_with_the_expected_type(suite_file, change, field, wanted):
    message = refusal(suite_file(**change))

    assert message.startswith(f"{field}: expected {wanted}, got ")


@pytest.mark.parametrize(
    ("change", "field", "least"),
    [
        pytest.param({"world_sizes": [1, 0]}, "world_sizes[1]", ">= 1", id="no rank"),
        pytest.param({"batch_sizes": [-8]}, "batch_sizes[0]", ">= 1", id="negative batch"),
        pytest.param({"steps": 0}, "steps", ">= 1", id="no step"),
        pytest.param({"launches": 0}, "launches", ">= 1", id="no launch"),
        pytest.param({"warmup": -1}, "warmup", ">= 0", id="negative warm-up"),
        pytest.param({"model": {"num_layers": 0}}, "model.num_layers", ">= 1", id="no layer"),
        pytest.param({"ddp": {"bucket_cap_mb": 0}}, "ddp.bucket_cap_mb", "> 0", id="empty bucket"),
        pytest.param({"step_deadline_s": 0}, "step_deadline_s", "> 0", id="no patience"),
        pytest.param({"start_deadline_s": float("nan")}, "start_deadline_s", "> 0", id="NaN"),
        pytest.param({"world_sizes": []}, "world_sizes", "length >= 1", id="empty matrix"),
        pytest.param({"batch_sizes": []}, "batch_sizes", "length >= 1", id="no batch size"),
        pytest.param({"price_per_gpu_hour": 0}, "price_per_gpu_hour", "> 0", id="no price"),
        pytest.param({"epoch_samples": 0}, "epoch_samples", ">= 1", id="empty epoch"),
        pytest.param({"tolerances": {"tail": 0}}, "tolerances.tail", "> 0", id="no tolerance"),
        pytest.param({"tolerances": {"tail": 1}}, "tolerances.tail", "< 1", id="all tolerated"),
    ],
)
def test_a_size_out_of_range_is_refused_with_the_range(suite_file, change, field, least):
    message = refusal(suite_file(**change))

    assert message.startswith(f"{field}: expected ")
    assert least in message


@pytest.mark.parametrize("warmup", [12, 13])
def test_warm_ups_must_leave_steps_to_measure(suite_file, warmup):
    message = refusal(suite_file(steps=12, warmup=warmup))

    assert message.startswith(f"warmup: {warmup} warm-ups leave nothing to measure of 12 steps")
    assert "steps counts the warm-ups too" in message


@pytest.mark.parametrize("field", ["world_sizes", "batch_sizes"])
def test_a_size_listed_twice_is_refused(suite_file, field):
    assert refusal(suite_file(**{field: [1, 2, 2]})).startswith(f"{field}: 2 is listed twice")


@pytest.mark.parametrize("field", ["tier", "precision", "denominator"])
def test_an_invalid_choice_is_refused_with_the_choices(suite_file, field):
    message = refusal(suite_file(**{field: "bogus"}))

    assert message.startswith(f"{field}: ")
    assert "'bogus'" in message


@pytest.mark.parametrize(
    ("workload", "model", "said"),
    [
        ("gpt", {"d_model": 100}, "model: d_model 100 is no multiple of n_heads 12"),
        ("llama", {"n_kv_heads": 5}, "model: n_heads 32 is no multiple of n_kv_heads 5"),
        ("llama", {"d_model": 96}, "model: d_model 96 ÷ n_heads 32 is odd"),
        ("distilbert", {"max_seq_len": 513}, "model.max_seq_len: expected a whole number <= 512"),
        (
            "distilbert",
            {"dataset": "ag-news"},
            "model.dataset: 'ag-news' is not one of ag_news, imdb",
        ),
        ("text_transformer", {"dropout": 1}, "model.dropout: expected a number < 1.0"),
        (
            "resnet50",
            {"channels_last": 1},
            "model.channels_last: expected true or false, got a whole number",
        ),
    ],
)
def test_impossible_model_sizes_are_refused(suite_file, workload, model, said):
    assert refusal(suite_file(workload=workload, model=model)).startswith(said)


def test_an_unknown_workload_is_refused_with_the_known_ones(suite_file):
    message = refusal(suite_file(workload="mpl"))

    assert message.startswith(
        "workload: 'mpl' is not one of the built-in ones (distilbert, gpt, llama, mlp, "
    )
    assert "module:function" in message
    assert "did you mean 'mlp'?" in message


@pytest.mark.parametrize(
    ("text", "key"),
    [
        pytest.param("suite: a\nsuite: b\n", "suite", id="top level"),
        pytest.param("model: {hidden_dim: 1, hidden_dim: 2}\n", "hidden_dim", id="nested"),
    ],
)
def test_a_duplicate_key_is_refused(tmp_path, text, key):
    path = tmp_path / "twice.yaml"
    path.write_text(text, encoding="utf-8")

    assert refusal(path) == f"{key}: it is given 2 times; keep one"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(b"suite: [", "not valid YAML", id="unclosed"),
        pytest.param(b"suite: a\n\ttier: cpu", "not valid YAML", id="tab"),
        pytest.param(b"", "the file: expected a table of fields, got nothing", id="empty"),
        pytest.param(b"- 1", "the file: expected a table of fields, got a list", id="list"),
        pytest.param(b"suite: \xff\xfe", "cannot be read", id="not text"),
        pytest.param(b"suite: !!python/name:os.system", "not valid YAML", id="code"),
    ],
)
def test_an_invalid_suite_file_is_refused(tmp_path, content, said):
    path = tmp_path / "broken.yaml"
    path.write_bytes(content)

    assert refusal(path).startswith(said)


def test_a_missing_file_is_refused_with_the_nearest_name(suite_file, tmp_path):
    suite_file("cpu_quick.yaml")

    message = refusal(tmp_path / "cpu_quik.yaml")

    assert message == "no such suite file; did you mean 'cpu_quick.yaml'?"


def test_a_missing_file_like_no_other_is_refused_with_the_files_that_are_there(
    suite_file, tmp_path
):
    message = refusal(tmp_path / "zzz.yaml")
    assert message == f"no such suite file: {tmp_path} has none"

    suite_file("cpu_quick.yaml")
    suite_file("gpu_deep.yaml")

    message = refusal(tmp_path / "zzz.yaml")
    assert message == "no such suite file; there are: cpu_quick.yaml, gpu_deep.yaml"


def test_a_missing_directory_is_named(tmp_path):
    message = refusal(tmp_path / "nowhere" / "suite.yaml")

    assert f"there is no directory {tmp_path / 'nowhere'}" in message


def test_a_case_in_two_files_is_refused_with_both_names(suite_file):
    first, second = suite_file("a.yaml", suite="a"), suite_file("b.yaml", suite="b")

    with pytest.raises(ConfigError) as caught:
        load_cases([first, second], Overrides())

    message = str(caught.value)
    assert message.startswith(f"{second}: case id 'mlp-none-fp32-ws1-b64' is also in {first}; ")


def test_one_id_may_occur_in_both_tiers(suite_file):
    """The baselines of the two tiers are in different files."""
    paths = [suite_file("a.yaml", suite="a"), suite_file("b.yaml", suite="b", tier="gpu")]

    assert len(load_cases(paths, Overrides())) == 4
