"""The code that runs inside a rank."""
