"""The message of a suite file that is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ddp_perf.config.loading import Overrides, load_cases
from ddp_perf.errors import ConfigError


def refusal(path: Path, import_paths: Sequence[str] = (), **overrides: object) -> str:
    """Return the line that the user reads, without the file's name at its beginning."""
    with pytest.raises(ConfigError) as caught:
        load_cases([path], Overrides(**overrides), import_paths)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message.removeprefix(str(path)).removeprefix(": ")
