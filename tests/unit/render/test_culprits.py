"""A culprit in one line."""

from __future__ import annotations

import pytest

from ddp_perf.render.units import culprit_text
from tests.builders import make_culprit


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, 'commit 1a2b3c4d5e6f "Fuse the loss" by Ada (98 %): +12.0 % (10.1 to 14.0 %)'),
        (
            {"probability": 0.9996},
            'commit 1a2b3c4d5e6f "Fuse the loss" by Ada (> 99 %): +12.0 % (10.1 to 14.0 %)',
        ),
        (
            {"ratio": None, "interval": None, "probability": 1.0, "why": "the only commit"},
            'commit 1a2b3c4d5e6f "Fuse the loss" by Ada: the only commit',
        ),
        (
            {"kind": "package", "name": "torch 2.12 → 2.13", "title": "", "author": ""},
            "package torch 2.12 → 2.13 (98 %): +12.0 % (10.1 to 14.0 %)",
        ),
    ],
)
def test_a_culprit_is_one_line_with_its_effect_or_why_it_is_known_without(changes, text):
    assert culprit_text(make_culprit(**changes)) == text
