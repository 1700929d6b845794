"""Secrets in URLs, in the names of variables, and in commands."""

from __future__ import annotations

import shlex

import pytest

from ddp_perf.core.secret import is_secret_name, secret_in, without_passwords, without_secrets


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@host:5432/db", "postgresql://me:***@host:5432/db"),
        ("postgresql://me:se@c:r/et@host/db", "postgresql://me:***@host/db"),
        ("postgres://host/db?user=me&password=secret", "postgres://host/db?user=me&password=***"),
        ("postgresql://h/db?sslpassword=secret&a=b", "postgresql://h/db?sslpassword=***&a=b"),
        ("redis://h/0?ACCESS_TOKEN=secret", "redis://h/0?ACCESS_TOKEN=***"),
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


@pytest.mark.parametrize(
    ("command", "secret"),
    [
        ("train.py --hub-token X1 --epochs 2", "--hub-token ***"),
        ("train.py --api_key=X1", "--api_key=***"),
        ("train.py logger.api_key=X1", "logger.api_key=***"),
        ("train.py --store redis://me:X1@host/0", "redis://me:***@host/0"),
        ("docker run -e HF_TOKEN=X1 -i image {command}", "HF_TOKEN=***"),
        ("docker run --env=PGPASSWORD=X1 image", "--env=PGPASSWORD=***"),
        ("sh -c 'export HF_TOKEN=X1; exec {command}'", "HF_TOKEN=***;"),
    ],
)
def test_a_secret_in_a_command_is_found_and_hidden(command, secret):
    words = shlex.split(command) if "'" not in command else command.split()

    assert secret_in(words) == secret
    assert "X1" not in " ".join(without_secrets(words))


@pytest.mark.parametrize(
    "command",
    [
        "train.py --pad-token <pad> --max-tokens=512 --sort-key loss --tokenizer bert",
        "train.py tokenizer.pad_token=<pad>",
        "docker run -e HF_TOKEN -e NCCL_ALGO=Ring image {command}",
        'sh -c "HF_TOKEN=$HF_TOKEN {command}"',
        "train.py --api-key",
        "train.py --use-api-key --epochs 2",
        "pytest tests/perf/test_perf.py::test_step_time[mlp-OMP_NUM_THREADS=1] --ddp-env=A=1",
    ],
)
def test_a_command_without_a_secret_is_as_it_was(command):
    words = command.split()

    assert [*without_secrets(words)] == words
    assert secret_in(words) is None
