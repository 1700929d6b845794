"""The names of runs, which no step needs."""


def run_name(day: str, number: int) -> str:
    """Return the name of the folder of a run."""
    return f"{day}-{number:03}"
