"""``--ddp-against``: performance tests that a duel of another side and this tree judges."""
