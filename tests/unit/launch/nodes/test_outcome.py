"""The lines in which a node process and its driver exchange values."""

from __future__ import annotations

import pytest

from ddp_perf.core.launch import LaunchRequest
from ddp_perf.launch.nodes.engine import (
    NodeRequest,
    decode_outcome,
    decode_request,
    encode_outcome,
    encode_request,
    without_outcome,
)
from tests.builders import make_case, make_rank_result
from tests.unit.duel.script_cases import make_script_case
from tests.unit.launch.nodes.builders import make_outcome

OUTCOME = make_outcome(results=(make_rank_result(),), output={"rank0.out": b"\xff"})


@pytest.mark.parametrize("case", [make_case(), make_script_case(args=["--name", 'it\'s "x" $Y'])])
def test_a_request_survives_the_command_line(case):
    request = NodeRequest(
        launch=LaunchRequest(case=case, round=3),
        tier="cpu",
        id="run",
        environ={"A": "b c"},
        node_variable="NODE",
    )

    text = encode_request(request)

    assert text.isascii()
    assert not set(text) & set(" '\"$\\\n")  # any shell leaves it as it is
    assert decode_request(text) == request


def test_the_outcome_is_found_among_other_lines():
    output = f"Warning: Permanently added a.\n{encode_outcome(OUTCOME)}\r\nConnection closed.\n"

    assert decode_outcome(output) == OUTCOME
    assert without_outcome(output).splitlines() == [
        "Warning: Permanently added a.",
        "Connection closed.",
    ]


@pytest.mark.parametrize(
    "output",
    [
        "",
        "Traceback\n",
        encode_outcome(OUTCOME)[:-40],
        "ddp-perf-outcome eJw=",
        "ddp-perf-outcome ä",
    ],
    ids=["nothing", "another line", "a part of it", "not JSON", "not base64"],
)
def test_output_without_a_whole_outcome_has_none(output):
    assert decode_outcome(output) is None


@pytest.mark.parametrize("kind", ["output", "records", "profiles"])
@pytest.mark.parametrize(
    "name", ["/etc/cron.d/x", "../rank0.out", "rank0.out/x", "rank0.out\n", ""]
)
def test_an_outcome_that_names_another_file_than_a_rank_s_is_none(name, kind):
    forged = make_outcome(**{kind: {name: b"x"}})

    assert decode_outcome(encode_outcome(forged)) is None
    honest = make_outcome(
        output={"rank0.out": b""}, records={"rank12.json": b""}, profiles={"rank3.json.gz": b""}
    )
    assert decode_outcome(encode_outcome(honest)) == honest
