"""Statistics of pairs of launches: one launch of each side of a duel."""
