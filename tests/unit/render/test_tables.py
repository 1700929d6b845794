"""Tables and paragraphs of plain text, and short names of cases."""

import pytest

from ddp_perf.render.tables import plain_table, rendered, wrapped
from ddp_perf.render.units import short_names


@pytest.mark.parametrize(
    ("ids", "names"),
    [
        pytest.param([], [], id="none"),
        pytest.param(["mlp-ddp-ws2"], ["mlp-ddp-ws2"], id="one"),
        pytest.param(
            ["mlp-none-ws1-b8", "mlp-ddp-ws2-b8"], ["none-ws1", "ddp-ws2"], id="common parts"
        ),
        pytest.param(
            ["mlp-none-ws1-b8", "mlp-ddp-ws2-b8-bf16"], ["none-ws1", "ddp-ws2-bf16"], id="ragged"
        ),
        pytest.param(
            ["mlp-ddp-ws2", "mlp-ddp-ws2-A=1"], ["mlp-ddp-ws2", "mlp-ddp-ws2-A=1"], id="empty"
        ),
        pytest.param(["mlp-a-b", "mlp-a-b-b"], ["mlp-a-b", "mlp-a-b-b"], id="not unique"),
    ],
)
def test_short_names_leave_out_the_parts_that_all_ids_share(ids, names):
    assert short_names(ids) == dict(zip(ids, names, strict=True))


def test_a_rendered_table_is_no_wider_than_asked():
    table = plain_table()
    table.add_column("case", overflow="fold")
    table.add_row("x" * 50)

    lines = rendered(table, 20)

    assert max(map(len, lines)) <= 20
    assert "".join(lines[2:]) == "x" * 50


def test_wrapped_paragraphs_keep_paths_whole():
    path = "artifacts/a-directory-with-a-long-name/results.json"

    assert wrapped([f"see {path}"], 20) == ["see", f"  {path}"]


def test_short_names_keep_the_layout_of_several_nodes():
    ids = ["mlp-ws8-b64", "mlp-ws16-2x8-b64", "mlp-ws16-4x4-b64"]

    assert list(short_names(ids).values()) == ["ws8", "ws16-2x8", "ws16-4x4"]
