"""The report of the work gate: what changed in a step, where, and what it would cost."""
