"""The values of options, each parsed from its text to its type, or refused in one line."""

from __future__ import annotations

import argparse
import os
import re

import msgspec

from ddp_perf.baselines.save import SAVE_MODES
from ddp_perf.core.environment import LAUNCHERS
from ddp_perf.core.injection import Injection, parse_injection
from ddp_perf.core.secret import without_passwords
from ddp_perf.errors import ConfigError
from ddp_perf.render.units import parse_duration

REPLAY = "replay:"  # before the name of a results file
_VARIABLE = "env:"  # before the name of a variable
_SLACK = "slack+"  # before the URL of a server that reads what Slack reads
_SLACK_HOST = "hooks.slack.com"
_WEBHOOK = re.compile(
    r"https?://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?([/?][!-~]*)?", re.IGNORECASE
)


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """An address that gets messages. Its path is a secret of its owner: only the host is shown."""

    host: str
    url: str
    is_slack: bool

    def __repr__(self) -> str:
        return self.host


def parse_whole(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return number


def parse_count(text: str) -> int:
    number = parse_whole(text)
    if number == 0:
        raise argparse.ArgumentTypeError("0 leaves nothing to run; give 1 or more")
    return number


def parse_counts(text: str) -> tuple[int, ...]:
    counts = tuple(parse_count(part.strip()) for part in text.split(",") if part.strip())
    if not counts or len(set(counts)) < len(counts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of different counts, as in 1,2,4")
    return counts


def parse_time(text: str) -> float:
    """Return the seconds of ``90s`` or ``3m``; 0 of ``0``."""
    if text == "0":
        return 0.0
    try:
        return parse_duration(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(f"{error}, nor 0") from None


def parse_rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < 0.5:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate between 0 and 0.5")
    return rate


def parse_assignment(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name.isidentifier():
        # Without the value, which may be a secret.
        raise argparse.ArgumentTypeError(f"{name!r} is not of the form NAME=VALUE")
    return name, value


def parse_slow_down(text: str) -> Injection:
    try:
        return parse_injection(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parse_database(text: str) -> str:
    if not text.startswith(("sqlite://", "postgresql://")):
        raise argparse.ArgumentTypeError(
            f"{without_passwords(text)!r} is not a URL of a history, as in"
            " sqlite:///artifacts/history.sqlite or postgresql://user@host/database"
        )
    return text


def parse_webhook(text: str) -> Webhook:
    """Return the webhook of a URL, or of the variable that has it. No error contains the URL."""
    if text.startswith(_VARIABLE):
        text = os.environ.get(text.removeprefix(_VARIABLE), "").strip()
        if not text:
            raise argparse.ArgumentTypeError("the variable that it names is not set, or is empty")
    url = text.removeprefix(_SLACK)
    match = _WEBHOOK.fullmatch(url)
    if match is None:
        raise argparse.ArgumentTypeError(
            "it is not the URL of a webhook, as in https://host/path, slack+https://host/path"
            " (Mattermost, say) or env:NAME of a variable that has it"
        )
    host = match[1].lower()
    return Webhook(host=host, url=url, is_slack=url != text or host == _SLACK_HOST)


def parse_launcher(text: str) -> str:
    if text in LAUNCHERS or text.removeprefix(REPLAY) not in ("", text):
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(LAUNCHERS)} and {REPLAY}FILE")


def parse_machine(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a name of up to 64 letters, digits, '-', '_' and '.'"
        )
    return text


def parse_save_mode(text: str) -> str:
    if text not in SAVE_MODES:
        modes = ", ".join(SAVE_MODES)
        raise argparse.ArgumentTypeError(
            f"unknown mode {text!r} (one of {modes}); before a path write --save-baseline=missing"
        )
    return text
