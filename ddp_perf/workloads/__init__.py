"""Models and data: the suite's own, and the seam for a user's."""
