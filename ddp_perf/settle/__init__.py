"""The second stage of a session: what is undecided is measured beside a stored session's code."""
