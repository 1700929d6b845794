"""Reports of a session: text for a terminal, a page, and files for other tools."""
