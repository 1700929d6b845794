"""A host that is unlike the others of its pool."""

from __future__ import annotations

import msgspec


class OutlierHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host whose control differs from that of its pool by more than hosts do."""

    host: str
    pool: str
    ratio: float  # of its control to that of the other hosts
    hosts: int  # other hosts, of which the first session counts
    limit: float  # the largest ratio of a host that fits, to or from the pool's

    def __str__(self) -> str:
        slower, ratio = self.ratio > 1, max(self.ratio, 1 / self.ratio)
        by = f"{100 * (ratio - 1):.0f} % {'slower' if slower else 'faster'}"
        return (
            f"host {self.host} does not fit pool {self.pool}: its control is {by} than that of its"
            f" {self.hosts} other hosts, where up to {100 * (self.limit - 1):.0f} % is usual; take"
            " it out, or give it a pool of its own"
        )
