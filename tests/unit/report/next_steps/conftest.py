"""How a table of next steps is tested: by a golden file, and rule by rule."""

from __future__ import annotations

import pytest


@pytest.fixture
def check(file_regression, monkeypatch):
    """Compare the steps of ``rows`` with the golden file; each rule must decide one of them."""

    def compare(rows, after, module, *tables):
        def steps():
            return [f"{name}: {after(row)}\n" for name, row in rows.items()]

        expected = steps()
        file_regression.check("".join(expected), encoding="utf-8")
        for table in tables:
            rules = getattr(module, table)
            for at, rule in enumerate(rules):
                monkeypatch.setattr(module, table, (*rules[:at], *rules[at + 1 :]))
                assert steps() != expected, f"no row needs {rule[1:]}"
            monkeypatch.setattr(module, table, rules)

    return compare
