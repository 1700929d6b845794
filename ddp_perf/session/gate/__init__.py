"""Judge the measurements of a session against a baseline."""
