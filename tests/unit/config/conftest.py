"""Suite files with the changes of a test."""

from __future__ import annotations

import pytest
import yaml

from tests.builders import SUITE


@pytest.fixture
def suite_file(tmp_path):
    """``suite_file(steps=3, name="a.yaml")`` writes a suite file; ... leaves a field out."""

    def write(name="suite.yaml", **changes):
        fields = {key: value for key, value in {**SUITE, **changes}.items() if value is not ...}
        path = tmp_path / name
        path.write_text(yaml.safe_dump(fields), encoding="utf-8")
        return path

    return write
