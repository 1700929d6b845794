"""Tables and paragraphs for a terminal."""
