"""A name that is markup, a formula or a command is data in every medium."""

from __future__ import annotations

import pytest

from tests.faults.names import MEDIA, NAMES


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("medium", MEDIA)
def test_a_name_is_data(medium, kind):
    assert list(MEDIA[medium](NAMES[kind])) == []
