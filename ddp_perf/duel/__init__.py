"""Side by side: two revisions or environments measured in alternation, and what differs."""
