"""The gain of a change is exact if the link and the step are known exactly."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from ddp_perf.errors import ConfigError
from ddp_perf.scaling.fit import (
    Nodes,
    ScalingFit,
    StepTerms,
    default_changes,
    gain,
    obstacle,
    parse_change,
)
from ddp_perf.scaling.laws import MIB, alpha_beta_laws, ddp_shape, in_buckets, unknown_shape
from ddp_perf.stats.link import Link, flat

ONE = flat(Link(latency_s=1.0, bytes_per_s=1.0))
MB_4 = 4.0 * MIB
ONE_BUCKET = StepTerms(
    shape=ddp_shape(in_buckets(MB_4, MB_4)), strategy="ddp", batch_size=32, micro_steps=1
)
UNKNOWN = StepTerms(shape=unknown_shape("ddp"), strategy="ddp", batch_size=32)


def known(work, *, compute, message, byte, overlap=0.0):
    """Return a fit without uncertainty: a ring with exactly these terms."""
    laws = alpha_beta_laws(work.shape, ONE)
    law = next(law for law in laws if (law.name, law.overlap) == ("ring", overlap))
    one = np.ones(1)
    terms = np.array([[compute], [message], [byte]])
    nodes = Nodes(law=law, terms=terms, weights=one, error=0 * one, freedom=4)
    return ScalingFit([nodes], [])


def gain_of(text, work, ranks=2, **terms):
    return gain(parse_change(text), work, ONE, known(work, **terms), ranks)


def test_too_many_buckets_are_refused():
    reason = obstacle(parse_change("bucket:0.000001"), ONE_BUCKET)

    assert reason == "it would make more than 4096 buckets"
    assert obstacle(parse_change("bucket:0.001"), ONE_BUCKET) is None  # 4000 of them


def test_double_batch_halves_the_transfer_per_sample():
    found = gain_of("batch:64", UNKNOWN, compute=1.0, message=0.0, byte=1.0)  # 1 s of transfer

    assert found.ratio.value == pytest.approx(2 / 1.5)
    assert found.term == "bandwidth"
    assert found.saved["bandwidth"] == pytest.approx(0.5)
    assert found.saved["compute"] == pytest.approx(0)


def test_a_double_global_batch_keeps_the_fixed_part_of_compute():
    """Of 1 s on one rank 0.2 s do not shrink: 2 ranks take 0.6 s, and 1 s for twice the batch."""
    work = StepTerms(shape=unknown_shape("ddp"), strategy="ddp", global_batch=64)
    (law, *_) = alpha_beta_laws(work.shape, ONE, strong=True)
    one = np.ones(1)
    terms = np.array([[1.0], [0.0], [0.0], [0.2]])
    fit = ScalingFit([Nodes(law=law, terms=terms, weights=one, error=0 * one, freedom=4)], [])

    found = gain(parse_change("batch:128"), work, ONE, fit, 2)

    assert found.ratio.value == pytest.approx(2 * 0.6 / 1.0)
    assert found.term == "compute"


def test_the_text_of_a_change_can_be_parsed_again():
    assert parse_change("batch:2097152").text == "batch:2097152"


def test_four_micro_steps_communicate_once():
    found = gain_of("accumulate:4", UNKNOWN, compute=1.0, message=0.5, byte=0.0)  # 1 s of latency

    assert found.ratio.value == pytest.approx(2 / 1.25)
    assert found.term == "latency"


def test_fp16_halves_the_bytes():
    found = gain_of("fp16", UNKNOWN, compute=1.0, message=0.5, byte=1.0)

    assert found.ratio.value == pytest.approx(3 / 2.5)
    assert found.term == "bandwidth"


@pytest.mark.parametrize(
    ("text", "ratio", "term"),
    [("bandwidth:10", 3 / 2.1, "bandwidth"), ("latency:0.5", 3 / 2.5, "latency")],
)
def test_better_link_shortens_its_term(text, ratio, term):
    found = gain_of(text, UNKNOWN, compute=1.0, message=0.5, byte=1.0)

    assert (found.ratio.value, found.term) == (pytest.approx(ratio), term)


def test_smaller_buckets_gain_overlap_and_cost_latency():
    ring = {"compute": 1.0, "message": 0.001, "byte": 0.1 / MB_4}

    found = gain_of("bucket:1", ONE_BUCKET, **ring, overlap=1.0)

    assert found.term == "overlap"
    assert found.saved["latency"] < 0
    assert found.ratio.value > 1
    without_overlap = gain_of("bucket:1", ONE_BUCKET, **ring)
    assert without_overlap.ratio.value < 1
    assert without_overlap.term == "latency"


def test_bucket_larger_than_all_gradients_changes_nothing():
    found = gain_of("bucket:100", ONE_BUCKET, compute=1.0, message=0.1, byte=0.1 / MB_4)

    assert (found.ratio.value, found.term) == (1, "none")


def test_fsdp_sends_one_and_a_half_times_the_bytes():
    found = gain_of("fsdp", UNKNOWN, compute=1.0, message=0.0, byte=1.0)

    assert found.ratio.value == pytest.approx(2 / 2.5)
    assert found.term == "bandwidth"


@pytest.mark.parametrize(
    "text", ["", "fp16:2", "batch", "batch:0", "batch:1.5", "bandwidth:", "bandwidth:-1", "x:2"]
)
def test_invalid_change_is_refused_with_the_valid_forms(text):
    with pytest.raises(ConfigError, match=r"--change .*write batch:N, accumulate:N"):
        parse_change(text)


@pytest.mark.parametrize("text", ["batch:64", "bucket:25", "fp16", "fsdp", "bandwidth:9.4"])
def test_text_of_a_change_is_as_given(text):
    assert parse_change(text).text == text


@pytest.mark.parametrize(
    ("text", "changes", "reason"),
    [
        pytest.param("batch:64", {"batch_size": None}, "batch size is not stated", id="batch"),
        pytest.param("bucket:25", {"shape": UNKNOWN.shape}, "size of the gradients", id="bytes"),
        pytest.param("fp16", {"has_hook": True}, "hook already decides", id="hook"),
        pytest.param("accumulate:4", {"strategy": "fsdp"}, "modelled for DDP only", id="fsdp"),
    ],
)
def test_change_that_cannot_be_predicted_has_a_reason(text, changes, reason):
    work = msgspec.structs.replace(ONE_BUCKET, **changes)

    assert obstacle(parse_change(text), ONE_BUCKET) is None
    assert reason in obstacle(parse_change(text), work)
    assert parse_change(text).kind not in {change.kind for change in default_changes(work)}
