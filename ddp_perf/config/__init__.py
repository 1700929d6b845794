"""Suite files: from YAML and options to cases. Mistakes are refused before a launch."""
