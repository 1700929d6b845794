"""The report's page: one file without network."""
