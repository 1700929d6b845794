"""A network as text: its links, ranges, and what is refused."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.config.network import network_text, parse_network
from ddp_perf.errors import ConfigError
from ddp_perf.stats.link import Link, LinkFit, Topology

LINKS = "gpus_per_node=8,intra=300GB/s,inter=25GB/s"


def test_a_network_is_read_in_its_units_with_the_latencies_of_nccl():
    near, far = Link(latency_s=5.7e-6, bytes_per_s=300e9), Link(latency_s=14e-6, bytes_per_s=25e9)
    plain = Topology(gpus_per_node=8, intra=near, inter=far)

    for text in (LINKS, "inter=25GB/s, gpus_per_node=8, intra=300.0GB/s"):
        found = parse_network(text, "network:").topology
        assert found.gpus_per_node == 8
        for one, other in ((found.intra, plain.intra), (found.inter, plain.inter)):
            assert one.latency_s == pytest.approx(other.latency_s)
            assert one.bytes_per_s == pytest.approx(other.bytes_per_s)
    slow = parse_network(f"{LINKS},inter_latency=20us,intra_latency=2.5µs", "network:").topology
    assert (slow.intra.latency_s, slow.inter.latency_s) == pytest.approx((2.5e-6, 20e-6))


def test_a_flat_network_has_one_link_for_all_ranks():
    found = parse_network("intra=1GB/s,intra_latency=50us,busy=0.5ns/B,jitter=20us", "network:")

    assert found.topology.nodes(64) == 1
    assert found.topology.intra == found.topology.inter
    assert found.topology.intra.bytes_per_s == pytest.approx(1e9)
    assert (found.busy_s_per_byte, found.jitter_s) == pytest.approx((0.5e-9, 20e-6))
    assert not found.is_uncertain


@given(st.floats(0.01, 100), st.floats(1.01, 10))
def test_draws_fill_a_range_evenly_and_calibrations_do_so_too(low, ratio):
    low, high = f"{low:.4f}", f"{low * ratio:.4f}"
    network = parse_network(f"intra={low}-{high}GB/s,intra_latency=10-20us", "network:")

    assert network.is_uncertain
    for step in (1, 2):  # a calibration has every second draw
        draws = [network.drawn(step * number) for number in range(27)]
        rates = [draw.topology.intra.bytes_per_s / 1e9 for draw in draws]
        assert all(float(low) * 0.999 <= rate <= float(high) * 1.001 for rate in rates)
        middle = network.topology.intra.bytes_per_s / 1e9
        assert statistics.geometric_mean(rates) == pytest.approx(middle, rel=0.12 * ratio)
        assert not any(draw.is_uncertain for draw in draws)
        assert len(set(rates)) == len(rates)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("intra=1GB/s", "intra=1GB/s,intra_latency=5.7us"),
        (" intra_latency=5.7µs , intra=1.0GB/s", "intra=1GB/s,intra_latency=5.7us"),
        ("busy=0.5-0.5ns/B,intra=0.90-1.1GB/s,intra_latency=7us", None),
        (f"jitter=20us,{LINKS}", None),
    ],
)
def test_equal_networks_have_one_text_which_is_read_back(text, canonical):
    network = parse_network(text, "network:")

    assert canonical in (None, network.text)
    assert parse_network(network.text, "network:").text == network.text
    for key, ends in parse_network(network.text, "network:").ranges.items():
        assert ends == pytest.approx(network.ranges[key])


def test_the_same_draw_has_the_same_links():
    network = parse_network("intra=1-2GB/s", "network:")

    assert network.drawn(3) == network.drawn(3) != network.drawn(4)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is no key ''"),
        (f"{LINKS},infra=3GB/s", "there is no key 'infra'"),
        (f"{LINKS},intra=3GB/s", "intra is given twice"),
        (LINKS.replace("25GB/s", "25"), "inter=25 is no number of GB/s above 0"),
        (LINKS.replace("25GB/s", "0GB/s"), "inter=0GB/s is no number of GB/s above 0"),
        (LINKS.replace("25GB/s", "nanGB/s"), "inter=nanGB/s is no number of GB/s above 0"),
        (LINKS.replace("25GB/s", "0-3GB/s"), "inter=0-3GB/s is no number of GB/s above 0"),
        (LINKS.replace("25GB/s", "3-2GB/s"), "inter=3-2GB/s is a range whose end is below"),
        (LINKS.replace("8", "2.5"), "gpus_per_node=2.5 is no count above 0"),
        (LINKS.replace("8", "0"), "gpus_per_node=0 is no count above 0"),
        (f"{LINKS},inter_latency=20", "inter_latency=20 is no number of us above 0"),
        (f"{LINKS},inter_latency", "inter_latency= is no number of us above 0"),
        ("inter_latency=20us", "without gpus_per_node and intra and inter"),
        ("intra_latency=20us", "without intra"),
        ("intra=1GB/s,inter=1GB/s", "without gpus_per_node"),
        ("intra=1GB/s,gpus_per_node=4", "without inter"),
    ],
)
def test_a_wrong_network_is_refused_in_one_line_with_the_keys(text, said):
    with pytest.raises(ConfigError) as caught:
        parse_network(text, "--network")

    message = str(caught.value)
    assert f"--network {text}: {said}" in message
    assert "; write intra=…GB/s, or gpus_per_node=N,intra=…GB/s,inter=…GB/s, and" in message
    assert "\n" not in message


def fit(latency_s, bytes_per_s):
    link = Link(latency_s=latency_s, bytes_per_s=bytes_per_s)
    return LinkFit(
        kind="all_reduce",
        ranks=2,
        link=link,
        latency_s=(0.5 * latency_s, 2 * latency_s),
        bytes_per_s=(0.8 * bytes_per_s, 1.25 * bytes_per_s),
        misfit=0.1,
        points=(),
    )


def test_measured_links_are_read_back_with_their_intervals():
    near, far = fit(20e-6, 3e9), fit(50e-6, 1.25e8)

    flat = parse_network(network_text(near), "network:")
    assert flat.topology.intra.bytes_per_s == pytest.approx(3e9)
    assert flat.topology.intra.latency_s == pytest.approx(20e-6)
    both = parse_network(network_text(near, far, per_node=8), "network:")
    assert both.topology.gpus_per_node == 8
    assert both.topology.inter.bytes_per_s == pytest.approx(1.25e8)
    assert both.ranges["inter_latency"] == pytest.approx((25e-6, 100e-6))
