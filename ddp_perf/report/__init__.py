"""What people and other tools read of a session."""
