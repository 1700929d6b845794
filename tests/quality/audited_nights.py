"""Audit a gate in real nights on this machine, and print what its history says.

    python tests/quality/audited_nights.py [--nights 5] [--budget 3m]

It makes the project of settle.py with five stored sessions. Then each night measures, appends its
session and ends with an audit, as ci/nightly does; the code changes in nothing that a step needs.
A night takes some minutes of a machine that must be quiet.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from ddp_perf.history.audits import audit_lines, audit_sentence
from ddp_perf.history.store import HistoryStore
from tests.quality.settle_project import SettleProject

_STORED = 5  # sessions before the first night


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nights", type=int, default=5)
    parser.add_argument("--budget", default="3m", help="of --ddp-settle")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch) / "nights"
        SettleProject(directory).prepared(_STORED)
        url = f"sqlite:///{directory}/history.sqlite"
        options = ["--ddp-audit", f"--ddp-settle={given.budget}", f"--ddp-history={url}"]
        nights = SettleProject(directory, options)
        for number in range(_STORED + 1, _STORED + 1 + given.nights):
            nights.store(number)
            print(f"night {number - _STORED} is over", file=sys.stderr, flush=True)
        with contextlib.closing(HistoryStore(url)) as history:
            audits = history.audits()
    print("\n".join([*map(audit_sentence, audits), *audit_lines(audits)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
