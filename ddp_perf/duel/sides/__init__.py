"""The sides of a duel: what a user names is checked, and made ready to launch."""
