"""Work tests: the step of every case of the suites in bench_configs/ does what is stored.

They count operations, bytes, collectives and memory, on any machine, without a GPU:

pytest -m work --save-baseline    stores the cases that have no counts yet
pytest -m work                    compares the counts with the stored ones
"""

import pytest

pytestmark = pytest.mark.work


def test_work(ddp_counted):
    ddp_counted.assert_verdict()
