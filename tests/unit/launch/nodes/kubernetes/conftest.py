from __future__ import annotations

import pytest

from tests.clusters import PlayedCluster


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    return PlayedCluster(tmp_path, monkeypatch)
