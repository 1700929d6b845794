"""What a chart draws: its figures, by the fields that they have."""

from __future__ import annotations


def drawn(chart, *fields):
    """Return the values of these fields of each figure that has all of them, in order."""
    spec = chart.to_dict()
    return [
        tuple(row[field] for field in fields)
        for name in _names(spec)
        for row in spec["datasets"][name]
        if set(fields) <= row.keys()
    ]


def words(chart):
    """Return the titles of a chart and what stands below them."""
    spec = chart.to_dict()
    heads = [part["title"] for part in spec.get("vconcat", [spec])]
    return [text for head in heads for text in (head["text"], *head.get("subtitle", ()))]


def _names(part):
    """Return the names of the data of each layer, once."""
    names = [part["data"]["name"]] if "name" in part.get("data", {}) else []
    for inner in (*part.get("layer", ()), *part.get("vconcat", ())):
        names += _names(inner)
    return list(dict.fromkeys(names))
