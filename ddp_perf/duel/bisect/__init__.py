"""The search for the commit that made a case slower."""
