"""Secrets in URLs and in the names of variables."""

from __future__ import annotations

import pytest

from ddp_perf.core.environment import is_secret_name, without_passwords


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@host:5432/db", "postgresql://me:***@host:5432/db"),
        ("postgresql://me:se@c:r/et@host/db", "postgresql://me:***@host/db"),
        ("postgres://host/db?user=me&password=secret", "postgres://host/db?user=me&password=***"),
        ("postgresql://h/db?sslpassword=secret&a=b", "postgresql://h/db?sslpassword=***&a=b"),
        ("--ddp-history=postgresql://:secret@h/db", "--ddp-history=postgresql://:***@h/db"),
        ("postgresql://me@host:5432/db", "postgresql://me@host:5432/db"),
        ("sqlite:///artifacts/history.sqlite", "sqlite:///artifacts/history.sqlite"),
        ("tests/perf/test_perf.py::test_a[b:c@d]", None),
    ],
)
def test_a_password_in_a_url_is_not_shown(url, shown):
    assert without_passwords(url) == (shown or url)


@pytest.mark.parametrize(
    "name",
    [
        *("HF_TOKEN", "TOKEN", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "WANDB_API_KEY"),
        *("apikey", "SSH_PASSPHRASE", "MY_KEY"),
    ],
)
def test_the_name_of_a_variable_shows_a_secret(name):
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    ["TOKENIZERS_PARALLELISM", "MAX_TOKENS", "NCCL_ALGO", "NUM_KEY_VALUE_HEADS", "MONKEY"],
)
def test_the_name_of_a_variable_shows_no_secret(name):
    assert not is_secret_name(name)
