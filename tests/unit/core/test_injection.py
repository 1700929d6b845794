"""``KIND:ARG`` is parsed as documented, or refused in one line that states the form."""

from __future__ import annotations

import pytest

from ddp_perf.core.injection import KINDS, Injection, check_applicable, parse_injection
from ddp_perf.errors import ConfigError
from tests.builders import make_cases, make_collectives, make_scripts

ONE, TWO = make_cases()


@pytest.mark.parametrize(
    ("text", "kind", "amount", "rank"),
    [
        ("compute:5%", "compute", 0.05, None),
        ("compute:100%", "compute", 1.0, None),
        ("compute:0.5%", "compute", 0.005, None),
        ("straggler:1:5ms", "straggler", 0.005, 1),
        ("straggler:0:250us", "straggler", 0.00025, 0),
        ("extra-allreduce:4096", "extra-allreduce", 4096, None),
        ("extra-allreduce:1MB", "extra-allreduce", 1 << 20, None),
        ("small-buckets:1MB", "small-buckets", 1 << 20, None),
        ("small-buckets:512B", "small-buckets", 512, None),
        ("no-overlap", "no-overlap", 0, None),
        ("sync-each-step", "sync-each-step", 0, None),
        ("data:1.5s", "data", 1.5, None),
        ("memory:64MB", "memory", 64 << 20, None),
        ("memory:2GB", "memory", 2 << 30, None),
        ("cpu-hog:3", "cpu-hog", 3, None),
    ],
)
def test_a_valid_injection_is_parsed(text, kind, amount, rank):
    assert parse_injection(text) == Injection(
        text=text, kind=kind, amount=pytest.approx(amount), rank=rank
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "unknown kind ''"),
        ("5%", "unknown kind '5%'"),
        ("compute ", "did you mean 'compute'?"),
        ("Compute:5%", "did you mean 'compute'?"),
        ("stragler:1:5ms", "did you mean 'straggler'?"),
        ("extra_allreduce:4", "did you mean 'extra-allreduce'?"),
        ("nothing-like-it", "one of compute, straggler, extra-allreduce"),
        ("compute", "not of the form compute:SHARE%, as in compute:5%"),
        ("compute:5", "as in compute:5%"),
        ("compute:-5%", "as in compute:5%"),
        ("compute:nan%", "as in compute:5%"),
        ("compute:1e3%", "as in compute:5%"),
        ("compute:5%:5%", "as in compute:5%"),
        ("compute:5%\n", "as in compute:5%"),
        ("straggler:5ms", "not of the form straggler:RANK:TIME, as in straggler:1:5ms"),
        ("straggler:-1:5ms", "as in straggler:1:5ms"),
        ("straggler:1:5", "as in straggler:1:5ms"),
        ("extra-allreduce:4.5", "as in extra-allreduce:4096"),
        ("small-buckets:1", "not of the form small-buckets:SIZE, as in small-buckets:1MB"),
        ("small-buckets:0.5KB", "as in small-buckets:1MB"),
        ("small-buckets:1mb", "as in small-buckets:1MB"),
        ("no-overlap:1", "not of the form no-overlap alone, without an argument"),
        ("sync-each-step:", "not of the form sync-each-step alone"),
        ("data:5 ms", "not of the form data:TIME, as in data:5ms"),
        ("memory:64", "not of the form memory:SIZE, as in memory:64MB"),
        ("cpu-hog:1.5", "not of the form cpu-hog:PROCESSES, as in cpu-hog:1"),
        ("cpu-hog:0", "injects nothing"),
        ("data:0.0ms", "injects nothing"),
        ("compute:0%", "injects nothing"),
        ("extra-allreduce:0", "injects nothing"),
        ("extra-allreduce:6", "a float32 takes 4 bytes; give a multiple of 4"),
    ],
)
def test_an_invalid_injection_is_refused_in_one_line(text, said):
    with pytest.raises(ConfigError) as caught:
        parse_injection(text)

    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_form_in_the_message(kind):
    with pytest.raises(ConfigError, match=f"of the form {kind}"):
        parse_injection(f"{kind}:?")


@pytest.mark.parametrize(
    ("text", "one", "two"),
    [
        ("compute:5%", True, True),
        ("data:5ms", True, True),
        ("sync-each-step", True, True),
        ("straggler:0:5ms", True, True),
        ("straggler:1:5ms", False, True),
        ("straggler:2:5ms", False, False),
        ("extra-allreduce:4", False, True),
        ("small-buckets:1MB", False, True),
        ("no-overlap", False, True),
    ],
)
def test_an_injection_applies_to_cases_that_have_what_it_changes(text, one, two):
    injection = parse_injection(text)

    assert (injection.applies_to(ONE), injection.applies_to(TWO)) == (one, two)


@pytest.mark.parametrize(
    ("texts", "cases", "said"),
    [
        (["straggler:2:5ms"], [ONE, TWO], "--ddp-inject straggler:2:5ms: .* trains with a rank 2"),
        (["data:1s", "no-overlap"], [ONE], "--ddp-inject no-overlap: .* trains with DDP"),
        (["data:1ms", "data:2ms"], [ONE], "--ddp-inject data:1ms: data is given twice"),
        (["straggler:0:1ms", "straggler:0:2ms"], [ONE], "straggler is given twice"),
    ],
)
def test_injections_without_effect_or_given_twice_are_refused(texts, cases, said):
    with pytest.raises(ConfigError, match=said):
        check_applicable([parse_injection(text) for text in texts], cases)


def test_an_injection_that_applies_to_one_of_several_cases_is_accepted():
    texts = ["straggler:0:5ms", "straggler:1:5ms", "no-overlap", "compute:5%"]

    check_applicable([parse_injection(text) for text in texts], [ONE, TWO])


def test_an_injection_without_a_selected_case_is_accepted():
    check_applicable([parse_injection("no-overlap")], [])


def test_no_overlap_does_not_apply_to_a_case_with_a_hook():
    (hooked,) = make_cases(world_sizes=[2], comm_hooks=[{"kind": "topk"}])
    injection = parse_injection("no-overlap")

    assert not injection.applies_to(hooked)
    with pytest.raises(ConfigError, match="trains with DDP and its own all-reduce"):
        check_applicable([injection], [hooked])


def test_injections_into_a_training_step_do_not_apply_to_a_collective():
    case = make_collectives()[0]
    texts = ["compute:5%", "straggler:1:5ms", "no-overlap", "data:1ms", "memory:1MB", "cpu-hog:1"]

    applicable = [text for text in texts if parse_injection(text).applies_to(case)]

    assert applicable == ["memory:1MB", "cpu-hog:1"]
    with pytest.raises(ConfigError, match=r"compute:5%: no selected case trains$"):
        check_applicable([parse_injection("compute:5%")], [case])


@pytest.mark.parametrize(("size", "fits"), [("1MB", True), ("1023KB", False), ("512B", False)])
def test_small_buckets_below_the_limit_do_not_apply_to_a_compiled_case(size, fits):
    one, two = make_cases(compile=True)
    injection = parse_injection(f"small-buckets:{size}")

    assert (injection.applies_to(one), injection.applies_to(two)) == (False, fits)


def test_small_buckets_below_the_limit_are_refused_with_the_smallest_size():
    with pytest.raises(ConfigError, match="a compiled one takes buckets of 1MB and more"):
        check_applicable([parse_injection("small-buckets:1KB")], make_cases(compile=True))


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("compute:5%", True),
        ("extra-allreduce:4", True),
        ("small-buckets:1KB", True),
        ("memory:1MB", True),
        ("cpu-hog:1", True),
        ("straggler:1:5ms", False),
        ("data:5ms", False),
        ("sync-each-step", False),
        ("no-overlap", False),
    ],
)
def test_injections_into_the_host_do_not_apply_to_cuda_graphs(text, fits):
    _, two = make_cases(tier="gpu", cuda_graphs=True)

    assert parse_injection(text).applies_to(two) == fits


@pytest.mark.parametrize(
    ("text", "one", "two"),
    [
        ("compute:5%", True, True),
        ("data:5ms", True, True),
        ("sync-each-step", True, True),
        ("memory:1MB", True, True),
        ("cpu-hog:1", True, True),
        ("straggler:1:5ms", False, True),
        ("extra-allreduce:4", False, True),
        ("small-buckets:1MB", False, False),
        ("no-overlap", False, False),
    ],
)
def test_an_injection_applies_to_a_script_unless_it_changes_how_ddp_is_built(text, one, two):
    injection = parse_injection(text)

    assert tuple(map(injection.applies_to, make_scripts())) == (one, two)


@pytest.mark.parametrize("text", ["small-buckets:1MB", "no-overlap"])
def test_what_a_script_does_itself_is_refused_with_the_remedy(text):
    with pytest.raises(ConfigError, match=f"{text}: a script builds DDP itself.*edit the script"):
        check_applicable([parse_injection(text)], make_scripts())
