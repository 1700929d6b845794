"""The steps of a case: training iterations, or calls of a collective."""
