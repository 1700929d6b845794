"""Plan and run the launches of a session."""
