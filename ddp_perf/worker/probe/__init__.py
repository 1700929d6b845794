"""Where the time of a step goes, measured on steps after the timed ones."""
