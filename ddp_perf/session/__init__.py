"""Use cases over one session: measure it, judge it, store it, compare it."""
