"""Permissions that other users of the machine have on what this process makes."""

from __future__ import annotations

import os
import stat


def deny_others() -> None:
    """Let nobody else write what this process makes, whatever its umask.

    torch keeps compiled code in the temporary directory, and runs what it finds there.
    """
    os.umask(os.umask(0o077) | stat.S_IWOTH)
