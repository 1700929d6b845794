"""Changed options of a suite are named with their line in its file."""

from __future__ import annotations

import pytest

from ddp_perf.work.session import option_changes

SUITE = """\
suite: quick
model: {input_dim: 16,
        hidden_dim: 32}
ddp:
  bucket_cap_mb: 25
  static_graph: true
world_sizes: [1, 2]
comm_hooks:
  - kind: fp16
techniques:
  small:
    ddp: {bucket_cap_mb: 5}
"""


@pytest.fixture
def suite_file(tmp_path):
    path = tmp_path / "quick.yaml"
    path.write_text(SUITE)
    return path


def changed(name, suite_file, technique=None):
    (text,) = option_changes({name: 1}, {name: 2}, suite_file, technique)
    return text


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("ddp.bucket_cap_mb", 5),
        ("model.hidden_dim", 3),
        ("world_size", 7),
        ("comm_hook.kind", 8),
        ("ddp.broadcast_buffers", 4),
    ],
)
def test_an_option_has_its_line_or_that_of_its_table(name, line, suite_file):
    assert changed(name, suite_file) == f"{name}: 1 → 2 (quick.yaml:{line})"


def test_the_line_of_the_technique_is_preferred(suite_file):
    assert changed("ddp.bucket_cap_mb", suite_file, "small").endswith(" (quick.yaml:12)")
    assert changed("ddp.static_graph", suite_file, "small").endswith(" (quick.yaml:6)")


def test_an_option_that_the_file_does_not_state_has_no_line(suite_file):
    assert changed("precision", suite_file) == "precision: 1 → 2"
    assert changed("ddp.bucket_cap_mb", None) == "ddp.bucket_cap_mb: 1 → 2"


def test_only_what_changed_is_named_as_yaml_writes_it():
    old = {"compile": True, "precision": "fp32", "batch_size": 4}
    new = {"compile": False, "batch_size": 4, "cuda_graphs": True}
    assert option_changes(old, new, None) == (
        "compile: true → false",
        "cuda_graphs: unset → true",
        "precision: fp32 → unset",
    )
