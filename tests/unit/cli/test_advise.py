"""``ddp-perf advise``: its choices, its suite file, its errors and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ddp_perf.cli.app import app
from ddp_perf.config.loading import Overrides, load_cases
from ddp_perf.core.launch import Collective
from ddp_perf.session.result import write_results
from tests.builders import (
    make_cases,
    make_environment,
    make_measurement,
    make_result,
    make_scripts,
    make_structure,
)

DOCUMENT_004 = Path(__file__).parents[3] / "baselines" / "v100-infiniband-hdr.json"
# Document 004 names no model: the figures are advised on as if it were ResNet-50.
RESNET_50 = ("--measured-params", "25.6e6", "--model-params", "25.6e6", "--gpu-memory", 32)
PARAMETERS = 124_000_000
GIGA = 10**9
H100 = make_environment(
    accelerator="NVIDIA H100 80GB HBM3",
    accelerator_key="h100-80gb-hbm3",
    gpu_memory=85 * GIGA,
    interconnect="NV18",
)
BUCKETS = (PARAMETERS,) * 4
STRUCTURE = make_structure(
    parameters=PARAMETERS,
    gradient_bytes=4 * PARAMETERS,
    buckets=BUCKETS,
    collectives=tuple(Collective(kind="all_reduce", dtype="float32", bytes=b) for b in BUCKETS),
)


def run(*arguments):
    return CliRunner().invoke(app, ["advise", *map(str, arguments)])


def text_of(done):
    return " ".join(done.stdout.split())


@pytest.fixture
def results(tmp_path, monkeypatch):
    """``results()``: sessions of a small GPT on 1 to 8 GPUs; an exchange adds ``exchange_s``."""
    monkeypatch.chdir(tmp_path)

    def write(
        *, exchange_s=0.005, batch_sizes=(8, 16), sample_bytes=GIGA, environment=H100, injections=()
    ):
        cases = make_cases(
            tier="gpu", workload="gpt", model={}, world_sizes=[1, 2, 8], batch_sizes=[*batch_sizes]
        )
        measurements = []
        for case in cases:
            several = exchange_s * 2 * (case.world_size - 1) / case.world_size  # a ring's bytes
            step_s = 0.0125 * case.batch_size + several
            measurements.append(
                make_measurement(
                    case,
                    [step_s, step_s * 1.001, step_s * 0.999],
                    structure=STRUCTURE,
                    peak_memory=16 * PARAMETERS + sample_bytes * case.batch_size,
                )
            )
        result = make_result(
            measurements, tier="gpu", environment=environment, injections=injections
        )
        write_results(tmp_path / "r.json", [result], complete=True)
        return "r.json"

    return write


def advised(*arguments, code=0):
    done = run(*arguments, "--json")
    assert done.exit_code == code, done.output
    found = json.loads(done.stdout)
    return found["recommendation"], found["suite"]


def candidate(found, **plan):
    return next(
        one for one in found["candidates"] if all(one["plan"][k] == v for k, v in plan.items())
    )


def test_the_measured_model_trains_with_ddp_in_the_gpus_half_format(results):
    found, _ = advised(results(exchange_s=1e-4), "--gpus", 8)

    plan = found["plan"]
    assert (plan["sharding"], plan["precision"], plan["checkpointing"]) == ("ddp", "bf16", False)
    assert (plan["hook"], plan["batch_size"], plan["micro_steps"]) == (None, 8, 1)
    assert found["goal"]["parameters"] == PARAMETERS
    memory = found["candidates"][0]["memory"]
    assert memory["states"] == 16 * PARAMETERS
    assert memory["activations"] == pytest.approx(8 * GIGA / 2)  # in half precision
    assert found["use"]["name"] == "production, medium models"


def test_seven_billion_parameters_are_sharded_over_8_gpus_since_ddp_needs_112_gb(results):
    found, _ = advised(
        results(sample_bytes=GIGA // 10),
        "--model-params",
        "7e9",
        "--gpus",
        8,
        "--precision",
        "fp32",
    )

    assert found["plan"]["sharding"] == "zero2"
    assert candidate(found, sharding="ddp")["memory"]["states"] == 112e9
    assert not candidate(found, sharding="ddp")["fits"]
    assert candidate(found, sharding="zero3")["memory"]["states"] == 14e9
    (reason,) = [one for one in found["reasons"] if one.startswith("strategy: DDP without")]
    assert "states 112 + lists of the optimizer's step 28; the states by Rajbhandari" in reason
    assert "strategy: it recommends DDP; here DDP does not fit" in found["differences"]


def test_activations_that_do_not_fit_are_checkpointed_or_the_batch_is_smaller(results):
    large = results(sample_bytes=95 * GIGA // 10)

    found, _ = advised(large, "--gpus", 2, "--precision", "fp32", "--model-params", PARAMETERS)

    assert found["plan"]["checkpointing"]
    assert found["plan"]["batch_size"] == 8
    assert "checkpointing: the activations do not fit" in " ".join(found["reasons"])
    halved, _ = advised(
        large, "--gpus", 2, "--precision", "fp32", "--gpu-memory", 20, "--model-params", PARAMETERS
    )
    assert halved["plan"]["batch_size"] == 4
    assert "batch 4: the measured one, 8, does not fit" in halved["reasons"]


def test_a_slow_link_is_met_by_a_hook_a_larger_batch_and_accumulation_as_far_as_needed(results):
    found, _ = advised(results(exchange_s=0.02), "--gpus", 8, "--precision", "fp32")

    plan = found["plan"]
    assert found["reaches"]
    assert plan["sharding"] == "ddp"
    assert (plan["hook"], plan["batch_size"], plan["micro_steps"]) == ("bf16", 16, 1)
    with_hook = candidate(found, hook=None, batch_size=16)
    assert with_hook["rejection"] == "below 88% efficiency"
    assert with_hook["gain"]["high"] < 1
    rejections = {one["rejection"] for one in found["candidates"]}
    assert "88% is reached with fewer samples" in rejections
    assert "batch 16 of 8" in " ".join(found["reasons"])
    assert "throughput (modelled: half of the bytes)" in " ".join(found["reasons"])


def test_what_no_plan_reaches_is_undecided_and_stated(results):
    done = run(results(exchange_s=2.0), "--gpus", 8)

    assert done.exit_code == 75
    assert (
        "No searched plan (up to 4 × the batch, 8 micro-steps, checkpoints only where memory needs"
        " them) reaches 88% efficiency on this link."
    ) in text_of(done)


def test_what_is_better_than_the_searched_plans_is_beyond_them(results):
    found, _ = advised(results(exchange_s=2.0, sample_bytes=GIGA // 10), "--gpus", 8, code=75)

    plan = found["plan"]
    assert (plan["batch_size"], plan["micro_steps"]) == (32, 8)
    larger = candidate(found, batch_size=64)
    assert larger["fits"]
    assert larger["rejection"] == "beyond the searched batch"
    assert not any("is reached" in one["rejection"] for one in found["candidates"])


def test_a_curve_that_was_slowed_on_purpose_is_named_so(results):
    done = run(results(injections=("compute:100%",)), "--gpus", 8)

    assert "(measured), slowed on purpose: compute:100%," in text_of(done)


def test_the_title_of_a_use_states_what_it_is_chosen_by(results):
    few = run(results(), "--gpus", 256)
    large = run("r.json", "--gpus", 64, "--model-params", "200e9")

    assert "by number of GPUs: massive scale" in text_of(few)
    assert "by parameters: massive scale" in text_of(large)
    assert "full optimization suite" in text_of(large)


def test_what_fits_nowhere_names_the_smallest_and_more_gpus(results):
    done = run(results(), "--model-params", "1e12", "--gpus", 8)

    assert done.exit_code == 75
    assert "DOES NOT FIT: the smallest is FSDP ZeRO-3 offload + checkpointing" in done.stdout
    assert done.stdout.splitlines()[-1] == (
        "next: ddp-perf advise r.json --gpus 16 --model-params 1e+12"
    )


def test_offload_is_the_last_resort_and_its_time_is_not_modelled(results):
    found, suite = advised(
        *(results(sample_bytes=10**6), "--model-params", "60e9", "--gpus", 4), code=75
    )

    assert found["plan"]["sharding"] == "offload"
    assert found["candidates"][0]["memory"]["host"] == 240e9
    assert found["candidates"][0]["time"] is None
    assert "cpu_offload: true" in suite


def test_one_batch_size_leaves_the_activations_unknown(results):
    done = run(results(batch_sizes=(8,)), "--gpus", 8)

    assert "activations not known" in text_of(done)
    assert "no larger batch is recommended, and what fits may not fit" in text_of(done)


def test_the_written_suite_measures_what_was_recommended(results, tmp_path):
    file = results(exchange_s=0.02)
    before = run(file, "--gpus", 8, "--only", "b8", "--optimizer", "sgd")
    assert before.stdout.splitlines()[-1] == (
        "next: ddp-perf advise r.json --gpus 8 --optimizer sgd --only b8 -o advised.yaml"
    )

    done = run(file, "--gpus", 8, "-o", "advised.yaml")

    assert done.stdout.splitlines()[-1] == (
        "next: pytest -m gpu --ddp-config=advised.yaml --ddp-json=advised.json"
    )
    found, suite = advised(file, "--gpus", 8)
    plan = found["plan"]
    assert (tmp_path / "advised.yaml").read_text(encoding="utf-8").strip() == suite
    cases = load_cases([tmp_path / "advised.yaml"], Overrides())
    (case,) = [
        one
        for one in cases
        if one.world_size == 8
        and one.batch_size == plan["batch_size"]
        and (one.training.comm_hook.kind if one.training.comm_hook else None) == plan["hook"]
    ]
    assert (case.strategy, case.precision, case.workload) == ("ddp", "bf16", "gpt")
    assert case.training.ddp.gradient_as_bucket_view
    assert case.training.gradient_accumulation == plan["micro_steps"]
    assert {one.world_size for one in cases} == {1, 8}


def test_a_suite_of_another_model_asks_for_its_sizes_and_has_no_one_rank_case(results, tmp_path):
    run(
        *(results(sample_bytes=GIGA // 10), "--model-params", "7e9", "--gpus", 8),
        *("--precision", "fp32", "-o", "big.yaml"),
    )

    text = (tmp_path / "big.yaml").read_text(encoding="utf-8")
    assert "# Set workload and model to those of 7e+09 parameters." in text
    (case, *_) = load_cases([tmp_path / "big.yaml"], Overrides())
    assert (case.strategy, case.world_size) == ("fsdp", 8)
    assert not case.training.fsdp.reshard_after_forward  # ZeRO-2


def test_document_004_agrees_with_the_advice_from_its_own_figures_for_16_gpus():
    arguments = ("--only", "ddp", "--gpus", 16, *RESNET_50)
    found, _ = advised(DOCUMENT_004, *arguments)

    efficiency = found["candidates"][0]["time"]["efficiency"]
    assert found["plan"]["sharding"] == "ddp"
    assert found["differences"] == []
    assert efficiency["low"] < 0.887 < efficiency["high"]  # as published
    assert "The models agree with it." in run(DOCUMENT_004, *arguments).stdout


def test_for_64_gpus_the_advice_differs_from_document_004_and_states_how():
    found, _ = advised(*(DOCUMENT_004, "--only", "ddp", "--gpus", 64, *RESNET_50))

    assert any("it recommends FSDP; here all states fit" in one for one in found["differences"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--gpus", 0], "--gpus 0: give a number of GPUs, as in 8", id="no GPU"),
        pytest.param(
            ["--gpus", 8, "--model-params", "-7"],
            "--model-params -7: give a number of parameters, as in 7e9",
            id="parameters",
        ),
        pytest.param(
            ["--gpus", 8, "--model-params", "nan"], "--model-params nan: give a number", id="NaN"
        ),
        pytest.param(
            ["--gpus", 8, "--measured-params", 0],
            "--measured-params 0: give a number of parameters",
            id="measured parameters",
        ),
        pytest.param(
            ["--gpus", 8, "--gpu-memory", 0], "--gpu-memory 0: give the GB of a GPU", id="memory"
        ),
        pytest.param(
            ["--gpus", 8, "--precision", "int8"],
            "--precision int8: it is not one of fp32, tf32, fp16, bf16",
            id="precision",
        ),
        pytest.param(
            ["--gpus", 8, "--optimizer", "lion"],
            "--optimizer lion: it is not one of adam, sgd",
            id="optimizer",
        ),
        pytest.param(["--gpus", 8, "--only", "nothing"], "no curve with 'nothing'", id="curve"),
        pytest.param(
            ["--gpus", 8, "--network", "gpus_per_node=8"],
            "without intra and inter; write",
            id="nodes",
        ),
    ],
)
def test_nonsense_is_refused_in_one_line_with_the_remedy(results, arguments, said):
    done = run(results(), *arguments)

    assert done.exit_code == 4, done.output
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert said in line


def test_what_the_file_does_not_state_has_to_be_given(results):
    on_cpu = results(environment=make_environment())

    assert "states no memory of a GPU: give --gpu-memory GB" in run(on_cpu, "--gpus", 8).stderr
    refused = run(DOCUMENT_004, "--gpus", 8, "--gpu-memory", 32, "--model-params", "7e9")
    assert refused.exit_code == 4
    (line,) = refused.stderr.splitlines()
    assert "no parameters of the measured model are stated: give --measured-params" in line


def test_a_larger_model_than_the_measured_one_takes_longer():
    arguments = (DOCUMENT_004, "--only", "ddp", "--gpus", 3, *RESNET_50[:2], "--gpu-memory", 32)

    asked, larger = (
        candidate(advised(*arguments, "--model-params", count, code=code)[0], sharding="ddp")
        for count, code in (("25.6e6", 0), ("256e6", 0))
    )

    assert larger["time"]["step_s"]["value"] > 9 * asked["time"]["step_s"]["value"]


def test_a_curve_that_cannot_be_fitted_is_refused_with_the_reason():
    done = run(
        *(DOCUMENT_004, "--only", "fsdp", "--gpus", 64, *RESNET_50),
    )

    assert done.exit_code == 4
    assert "a law needs two world sizes, but the data have none" in done.stderr
    assert "throughput 56,320 is stated, 113,149 follows" in done.stderr


def test_a_script_is_given_no_options_of_a_suite(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scripts = [make_measurement(case, [0.01] * 3) for case in make_scripts(tier="gpu")]
    write_results(tmp_path / "r.json", [make_result(scripts, tier="gpu")], complete=True)

    done = run("r.json", "--gpus", 8, "--gpu-memory", 80)

    assert done.exit_code == 4
    assert "a script chooses its strategy and its precision itself" in done.output
    assert "ddp-perf predict r.json" in done.output
