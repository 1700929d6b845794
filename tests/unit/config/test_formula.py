"""Sizes in braces, and formulas of whole numbers."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.config.formula import filled, result_of, sizes_in
from ddp_perf.errors import ConfigError

SIZES = {"world_size": 2, "batch_size": 64}

numbers = st.integers(1, 20).map(str)
names = st.sampled_from(["{world_size}", "{batch_size}"])
formulas = st.recursive(
    numbers | names,
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from("+-*"), inner)
        | st.builds("({} // {})".format, inner, numbers)
    ),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--batch={batch_size}", "--batch=64"),
        ("{world_size}x{batch_size}", "2x64"),
        ("plain", "plain"),
        ("", ""),
        ('{"lr": 0.1, "inner": {"a": []}}', '{"lr": 0.1, "inner": {"a": []}}'),
        ('{"size": {batch_size}}', '{"size": 64}'),
        ("{}", "{}"),
        ("{0}", "{0}"),
        ("{a-b}", "{a-b}"),
        ("model-{{epoch}}-{batch_size}.pt", "model-{epoch}-64.pt"),
        ("{{batch_size}}", "{batch_size}"),
        ("}{", "}{"),
    ],
)
def test_sizes_are_replaced_and_other_braces_stay(text, expected):
    assert filled("args[0]", text, SIZES) == expected


@given(st.recursive(st.integers() | st.text(), lambda inner: st.lists(inner), max_leaves=5))
def test_json_stays_as_it_is(value):
    text = json.dumps({"options": value, "more": {"deep": {}}})

    if not any(f"{{{name}}}" in text for name in ("world_size", "batch_size")):
        assert json.loads(filled("args[0]", text, SIZES)) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{batchsize}", "{batchsize} is unknown; did you mean 'batch_size'?"),
        ("{epoch}", "{epoch} is unknown; there are: world_size, batch_size"),
    ],
)
def test_an_unknown_name_is_refused_with_the_way_to_keep_it(text, said):
    with pytest.raises(ConfigError) as caught:
        filled("args[3]", text, SIZES)

    assert str(caught.value) == f"args[3]: {said}; write {{{text}}} for the text {text}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{batch_size}", {"batch_size"}),
        ("{{batch_size}}", set()),
        ("{x}{world_size}", {"world_size"}),
    ],
)
def test_the_sizes_of_a_text_are_found(text, expected):
    assert sizes_in(text) == expected


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("{world_size} * {batch_size}", 128),
        ("{batch_size}", 64),
        (" 2*({batch_size}+1) - {world_size} ", 128),
        ("{batch_size} // 3", 21),
        ("512", 512),
        ("1_000", 1000),
    ],
)
def test_a_formula_is_computed(formula, expected):
    assert result_of("samples_per_step", formula, SIZES) == expected


@given(formulas)
def test_a_formula_has_the_value_that_python_gives_it(formula):
    oracle = eval(formula.format(**SIZES), {"__builtins__": {}})

    if oracle >= 1:
        assert result_of("samples_per_step", formula, SIZES) == oracle
    else:
        with pytest.raises(ConfigError, match="it must be from 1"):
            result_of("samples_per_step", formula, SIZES)


@given(st.text(st.sampled_from("0123456789+-*/(){}., _\"'xworld_size"), max_size=200))
def test_any_text_is_computed_or_refused_as_a_formula(text):
    with contextlib.suppress(ConfigError):  # and no other error
        assert result_of("samples_per_step", text, SIZES) >= 1


@pytest.mark.parametrize(
    "formula",
    [
        "nonsense",
        "",
        "2 ** 8",
        "9 ** 9 ** 9",
        "{world_size}{batch_size}",
        "1{batch_size}",
        "{batch_size} / 2",
        "{batch_size} % 2",
        "1e3",
        "64.0",
        "True",
        "-1",
        "world_size * 64",
        "__import__('os').getpid()",
        "'64'",
        "64; 65",
        "(" * 199,
        "(" * 100 + "1",
        "\0",
    ],
)
def test_anything_else_is_no_formula(formula):
    with pytest.raises(ConfigError) as caught:
        result_of("samples_per_step", formula, SIZES)

    assert str(caught.value) == (
        f"samples_per_step: {formula!r} is no formula of whole numbers, {{world_size}},"
        " {batch_size}, + - * // and brackets"
    )


@pytest.mark.parametrize(
    ("formula", "said"),
    [
        ("0", "is 0 with world_size 2 and batch_size 64; it must be from 1 to 10^12"),
        ("{world_size} - {batch_size}", "is -62 with world_size 2 and batch_size 64; it must"),
        ("9" * 150 + " * " + "9" * 40, "it must be from 1 to 10^12"),
        ("{batch_size} // ({world_size} - 2)", "divides by 0 with world_size 2 and batch_size 64"),
    ],
)
def test_a_result_that_is_no_number_of_samples_is_refused(formula, said):
    with pytest.raises(ConfigError) as caught:
        result_of("samples_per_step", formula, SIZES)

    assert said in str(caught.value)
