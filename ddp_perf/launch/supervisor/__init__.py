"""Inside a server: start the ranks of a launch, watch each one, and report why one failed."""
