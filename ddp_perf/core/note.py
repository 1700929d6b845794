"""The notes of the gate on a finding: what each stage after the rule saw, and its text."""

from __future__ import annotations

import enum

import msgspec

from ddp_perf.core.verdict import Outcome

_REMEDIES = (
    'fix it, accept it (--save-baseline=accept --ddp-reason "…"), or expect it until a day'
    " (ddp-perf baseline ack)"
)


class NoteKind(str, enum.Enum):
    """The kinds, each with its text: ``{0}`` and so on are the facts of a note.

    ``{reason}`` is the sentence of the rule with the notes before, and a text without it takes
    their place. ``{figures}`` is what the figures of worthless launches give.
    """

    text: str

    def __new__(cls, name: str, text: str) -> NoteKind:
        kind = str.__new__(cls, name)
        kind._value_, kind.text = name, text
        return kind

    REMEDY = "remedy", "{reason}; {0}"
    NUMERATOR = "numerator", "the step of all ranks is not slower; {0}"
    HOSTS = "hosts", "{reason}; the sessions are the first ones of {0} of the pool"
    OTHER_HOST = "other host", "{0}; {figures}"
    NODES = "nodes", "{reason}; over {0}, each of which counts as a launch"
    SLOW_NODES = "slow nodes", "every node is slow ({0})"
    CLOCK = "clock", "{reason}; {0}"
    OTHER_CLOCK = "other clock", "{0}; {figures}"
    DISTURBED = "disturbed", "{0}; {figures}"
    PARTLY_DISTURBED = "partly disturbed", "{reason}; {0}"
    OWN_USE = "own use", "{reason}; {0}, a part of the step's cost"
    FAULTS = "faults", "{reason}; {0}"
    FASTER_RANK = (
        "faster rank",
        "all ranks together reach their throughput; one rank alone is faster than published",
    )
    RED_SINCE = "red since", f"{{reason}}; it has been slower since {{0}}; {_REMEDIES}"
    STILL_RED = (
        "still red",
        f"slower since {{0}}, and not shown to be fixed; {_REMEDIES}; this session: {{reason}}",
    )
    SUSPECTS = "suspects", "suspect {0} sessions in a row; {reason}"
    ROTATES = (
        "rotates",
        "{was}, reported only, since the case rotates over a week (--ddp-config gates it);"
        " {reason}",
    )
    OTHER_NODE = "other node", "{0}; on node {1}: {reason}"
    SAME_CODE = "same code", "code, packages and options are those of {0}"
    SLOWER_MACHINE = (
        "slower machine",
        "code, packages and options are those of {0}, so the machine got slower{1}; {reason}",
    )
    NOT_STORED = "not stored", "not stored: {0}"


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """A note of one stage: its kind, and the facts of its text."""

    kind: NoteKind
    facts: tuple[str, ...] = ()
    was: Outcome | None = None  # the outcome that the stage replaced; None: it replaced none

    def added_to(self, reason: str) -> str:
        """Return the reason with the note."""
        was = self.was and self.was.value
        figures = reason if self.was is Outcome.INVALID else f"the figures alone give {was}"
        return self.kind.text.format(*self.facts, reason=reason, figures=figures, was=was)
