"""The lives of code that `months.py` simulates, and the machines on which nothing changes."""

from __future__ import annotations

import msgspec

from benchmarks.simulated_machine import Machine

FOREVER = 10**6


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """A true change of the code, and what its users do."""

    name: str
    days: int
    slower: float = 0.0  # as a fraction, on the days from `slower_from` until `slower_until`
    slower_from: int = FOREVER
    slower_until: int = FOREVER
    before: tuple[int, float] | None = None  # the day and size of a change that was accepted
    drift: float = 0.0  # a session, from the first one
    actions: dict[int, str] = {}  # by day, after its session
    expected: range = range(0)  # days on which a regression was acknowledged: they do not count
    judged_after: bool = True  # the sessions after `slower_until` must be green
    machine: Machine = Machine()

    def change(self, day: int) -> float:
        """Return the true slow-down of a day, as a fraction."""
        level = 1 + self.drift * day
        if self.before is not None and day >= self.before[0]:
            level *= 1 + self.before[1]
        if self.slower_from <= day < self.slower_until:
            level *= 1 + self.slower
        return level - 1

    def action(self, day: int) -> str:
        """Return what is done after the session of a day."""
        return self.actions.get(day, "append")


LOOSE = Machine(tolerance=0.1, session=0.02, launch=0.02)
NOISY = Machine(session=0.01, launch=0.02)


def _lasting(after: int, size: float, days: int = 30, **more: object) -> Life:
    name = f"{after} sessions, then {size:+.0%} for good".replace("%", " %")
    return Life(name=name, days=after + days, slower=size, slower_from=after, **more)


def _forming(at: int, size: float, suffix: str = "", **more: Machine) -> Life:
    name = f"{size:+.0%} from session {at + 1} on{suffix}".replace("%", " %", 1)
    return Life(name=name, days=at + 40, slower=size, slower_from=at, **more)


LIVES = (
    _lasting(8, 0.05),
    _lasting(8, 0.10),
    _lasting(30, 0.10),
    _lasting(8, 0.03),
    Life(
        name="8 sessions, three of +10 %, then mended",
        days=26,
        slower=0.1,
        slower_from=8,
        slower_until=11,
    ),
    Life(
        name="+10 % from session 3 to 20, then mended",
        days=40,
        slower=0.1,
        slower_from=2,
        slower_until=20,
    ),
    Life(
        name="+5 % from session 4 to 20, then mended",
        days=40,
        slower=0.05,
        slower_from=3,
        slower_until=20,
    ),
    Life(
        name="8 sessions, sixty of +5 %, then mended",
        days=90,
        slower=0.05,
        slower_from=8,
        slower_until=68,
    ),
    *(_forming(at, size) for size in (0.05, 0.1) for at in (1, 2, 3)),
    *(_forming(at, 0.2, ", tolerance 10 %, sds of 2 %", machine=LOOSE) for at in (1, 2)),
    Life(
        name="8 sessions of 1 %, launches of 2 %, then +10 %",
        days=38,
        slower=0.1,
        slower_from=8,
        machine=NOISY,
    ),
    Life(name="8 sessions, then 15 % faster for good", days=40, before=(8, -0.15), slower_until=8),
    Life(name="drift of 0.1 % a session, a year", days=365, drift=0.001, slower_from=30),
    Life(
        name="+10 % at 8, accepted at 12",
        days=40,
        before=(8, 0.1),
        slower_until=13,
        actions={12: "accept"},
    ),
    Life(
        name="+10 % at 8, accepted at 12, then +5 % at 20",
        days=50,
        before=(8, 0.1),
        slower=0.05,
        slower_from=20,
        actions={12: "accept"},
    ),
    Life(
        name="+10 % at 8, acknowledged from 10 to 20",
        days=50,
        slower=0.1,
        slower_from=8,
        slower_until=FOREVER,
        actions={10: "acknowledge 10"},
        expected=range(11, 21),
    ),
    Life(
        name="+5 % at 8, acknowledged, +15 % from 20 on",
        days=40,
        before=(8, 0.05),
        slower=0.1,
        slower_from=20,
        actions={10: "acknowledge 100"},
    ),
)

_MANY = Machine(cases=20, metrics=5, alike=0.5)


def _many(**changes: object) -> Machine:
    return msgspec.structs.replace(_MANY, **changes)


FAMILIES = {
    "cases independent": _many(alike=0.0),
    "cases correlated by 0.5 (as below)": _MANY,
    "cases correlated by 0.9": _many(alike=0.9),
    "4 cases, correlated by 0.9": _many(cases=4, alike=0.9),
    "sessions of 1 %": _many(session=0.01),
    "sessions of 1 %, launches of 2 %": _many(session=0.01, launch=0.02),
    "successive sessions correlated by 0.6": _many(lasting=0.6),
    "sessions move by 3 %, as the control shows": _many(moves=0.03),
    "Student's t with 3 df": _many(law="t3"),
    "Student's t with 3 df, cases independent": _many(law="t3", alike=0.0),
    "5 % of sessions are 8 sd off": _many(law="outliers", alike=0.9),
    "5 % of sessions have a neighbour": _many(busy=0.05),
    "two machines that differ by 1 %, in turn": _many(alternates=0.01),
    "3 × as restless from day 30 to 60, of 120": _many(restless=(30, 60, 3.0), days=120),
    "3 × as restless from day 30 on, of 120": _many(restless=(30, FOREVER, 3.0), days=120),
    "half as restless from day 30 on": _many(restless=(30, FOREVER, 0.5)),
}
