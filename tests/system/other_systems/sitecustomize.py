"""A simulation of Python on $PRETENDED_SYSTEM, darwin or win32.

The modules, functions, signals and kernel files that this system lacks are removed. Libraries are
real Linux ones, so they are imported before, as are the parts of the standard library that load
modules of the system.
"""

from __future__ import annotations

import errno
import importlib
import io
import os
import select
import shutil
import signal
import sys
import sysconfig

_LIBRARIES = (
    *("asyncio", "ctypes.util", "multiprocessing.connection", "multiprocessing.context"),
    *("subprocess", "tempfile", "getpass", "uuid", "webbrowser", "platform", "socket"),
    *("filelock", "altair", "rich.console", "rich.progress", "typer.testing"),
    "pytest",
)
_MODULES = {"darwin": ("spwd",), "win32": ("fcntl", "grp", "pwd", "resource", "termios")}
_OF_LINUX = (
    *("sched_getaffinity", "sched_setaffinity", "pidfd_open", "eventfd", "memfd_create"),
    *("posix_fadvise", "prlimit"),
)
_OF_UNIX = (
    *("fork", "forkpty", "getpgid", "setpgid", "setsid", "killpg", "getuid", "geteuid", "getpgrp"),
    *("sysconf", "statvfs", "uname", "getloadavg", "mkfifo", "nice", "O_NONBLOCK"),
)
_KERNEL = ("/proc", "/sys/", "/dev/shm", "/dev/kmsg")
_SIGNALS = ("SIGKILL", "SIGSTOP", "SIGCONT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGHUP")


def _pretend(system):
    for library in _LIBRARIES:
        importlib.import_module(library)
    sysconfig.get_config_vars()  # read from a file named by the platform
    for module in _MODULES[system]:
        sys.modules[module] = None  # an ImportError for whoever asks
    on_windows = system == "win32"
    for attribute in (*_OF_LINUX, *(_OF_UNIX if on_windows else ())):
        vars(os).pop(attribute, None)
    if on_windows:
        vars(select).pop("poll", None)
        for name in _SIGNALS:
            vars(signal).pop(name, None)
        vars(io)["_WindowsConsoleIO"] = type(
            "_WindowsConsoleIO", (), {}
        )  # pytest looks whether it has one
    vars(select).pop("epoll", None)
    sys.addaudithook(_without_kernel_files)
    shutil.disk_usage = _refuse  # asked for /dev/shm alone
    sys.platform = system


def _without_kernel_files(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith(_KERNEL):
        _refuse(arguments[0])


def _refuse(path):
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


_pretend(os.environ["PRETENDED_SYSTEM"])
