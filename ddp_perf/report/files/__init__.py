"""One file for each format that another tool reads."""
