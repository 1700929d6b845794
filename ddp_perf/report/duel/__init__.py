"""The report of a duel: the verdict on each case, its cause, and the one next command."""
