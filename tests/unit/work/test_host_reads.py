"""Which operations are host reads, for which a GPU would make the host wait."""

from __future__ import annotations

import pytest

from ddp_perf.work.values import is_host_read
from tests.works import SITE, make_operation, make_site

READ = "aten._local_scalar_dense"
TRAINER = make_site(5, file="ddp_perf/worker/steps/trainer.py", function="Trainer.step")


@pytest.mark.parametrize(
    ("fields", "site", "expected"),
    [
        ({"phase": "forward"}, SITE, True),
        ({"phase": "backward"}, SITE, True),
        ({"phase": "forward"}, TRAINER, True),
        ({"name": "aten.clone", "phase": "forward"}, SITE, False),
        ({"phase": "optimizer"}, SITE, False),  # the optimizer's own
        ({"phase": "optimizer"}, TRAINER, True),  # the scaler's of fp16: whether a gradient is inf
        ({"phase": "backward", "dtype": "int32"}, TRAINER, False),  # the reducer's, of parameters
        ({"phase": "backward", "dtype": "int32"}, SITE, True),  # a hook of the user's
        ({"phase": "backward", "dtype": "float32"}, TRAINER, True),
    ],
)
def test_the_reads_of_numbers_that_are_on_the_host_are_none(fields, site, expected):
    assert is_host_read(make_operation(**{"name": READ, **fields}), site) is expected
