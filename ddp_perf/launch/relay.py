"""The far end of a CommandLauncher: ``python3 -m ddp_perf.launch.relay``.

It keeps a warm ForkserverLauncher where the user's command runs it, in a container say. It receives
requests on its standard input and answers on its standard output, as marked lines (frames.py). It
ends with all that it started when its standard input is closed, which happens if its driver ends.
It does not import torch.
"""

from __future__ import annotations

import sys

from ddp_perf.launch.rank_packages import install_command, missing_here


def main() -> int:
    """Serve one driver until it closes the standard input."""
    if missing := missing_here():
        print(
            f"{sys.executable} lacks what ranks need: {install_command(missing)}", file=sys.stderr
        )
        return 1
    from ddp_perf.launch.relay_service import serve  # it needs the packages

    return serve()


if __name__ == "__main__":
    sys.exit(main())
