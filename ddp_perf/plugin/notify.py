"""Send a message to webhooks, once and within a deadline. No failure of it is an error."""

from __future__ import annotations

import http.client
import threading
import time
import urllib.request
from collections.abc import Sequence
from typing import Any
from urllib.error import HTTPError, URLError

import msgspec

from ddp_perf.plugin.option_values import Webhook
from ddp_perf.report.notification import Notification, slack_text

DEADLINE_S = 5.0  # of all webhooks together


def send(
    webhooks: Sequence[Webhook], message: Notification, *, deadline_s: float = DEADLINE_S
) -> list[str]:
    """Send the message, and return a line for each webhook: that it was notified, or why not."""
    silent = f"there was no answer within {deadline_s:g} s"
    problems: dict[Webhook, str | None] = dict.fromkeys(webhooks, silent)

    def post(webhook: Webhook) -> None:
        try:
            _post(webhook, message, deadline_s)
        except TimeoutError:
            return
        except (OSError, http.client.HTTPException, ValueError) as error:
            problems[webhook] = _problem(error)
        else:
            problems[webhook] = None

    # Threads: a time-out of a socket bounds neither the look-up of a name nor a slow answer.
    threads = [threading.Thread(target=post, args=[one], daemon=True) for one in problems]
    end = time.monotonic() + deadline_s
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return [_line(webhook, problem) for webhook, problem in problems.items()]


def _post(webhook: Webhook, message: Notification, timeout_s: float) -> None:
    body: Any = {"text": slack_text(message)} if webhook.is_slack else message
    headers = {"Content-Type": "application/json", "User-Agent": "ddp-perf"}
    data = msgspec.json.encode(body)
    request = urllib.request.Request(webhook.url, data, headers)  # noqa: S310 - http or https
    try:
        urllib.request.build_opener(_NoRedirect).open(request, timeout=timeout_s).close()
    except HTTPError as error:
        error.close()
        raise
    except URLError as error:  # it wraps what failed before there was an answer
        raise (error.reason if isinstance(error.reason, OSError) else error) from None


def _problem(error: Exception) -> str:
    """Describe the error without the URL, which the texts of some errors contain."""
    if isinstance(error, HTTPError):
        redirects = "; it redirects: name the address that it redirects to"
        return f"HTTP {error.code}{redirects if 300 <= error.code < 400 else ''}"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return f"HTTP does not reach it ({type(error).__name__})"


def _line(webhook: Webhook, problem: str | None) -> str:
    if problem is None:
        return f"notified {webhook.host}"
    return f"--ddp-notify: {webhook.host} was not notified: {problem}"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Redirects are refused: what follows one is a GET, which loses the message."""

    def redirect_request(self, *_: Any) -> None:
        return None
