"""An attribute has its value again after the block, also after an error."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

from ddp_perf.worker.replaced import replaced


def test_an_attribute_is_replaced_until_the_block_is_left_by_an_error():
    owner = SimpleNamespace(value=1)

    with contextlib.suppress(KeyError), replaced(owner, "value", 2):
        assert owner.value == 2
        raise KeyError

    assert owner.value == 1
