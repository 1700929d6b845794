"""What a report is written from: a session's results, and what else lies beside them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from ddp_perf.errors import ResultsError
from ddp_perf.report.selftest import SelftestFile
from ddp_perf.session.power_curve import PowerCurve
from ddp_perf.session.result import SuiteResult

SELFTEST = Path("artifacts/selftest/selftest.json")  # where `ddp-perf selftest` leaves it


class ReportSource(msgspec.Struct, frozen=True, kw_only=True):
    """A session, and the self-test of the machine that measured it."""

    suites: tuple[SuiteResult, ...]
    complete: bool  # False: the session did not measure all that was asked of it
    curve: PowerCurve | None = None


def curve_for(suites: Sequence[SuiteResult], path: Path) -> PowerCurve | None:
    """The self-test in this file, where there is one and it is of a machine of these suites.

    Raises ResultsError where the file is there and cannot be read.
    """
    if not path.exists():
        return None
    try:
        curve = msgspec.json.decode(path.read_bytes(), type=SelftestFile).curve
    except OSError as error:
        raise ResultsError(f"{path}: cannot be read: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise ResultsError(
            f"{path}: is no self-test's result ({error}); remove it, or run ddp-perf selftest"
        ) from None
    keys = {suite.environment.accelerator_key for suite in suites}
    return curve if curve.environment.accelerator_key in keys else None
