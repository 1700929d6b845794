"""Pages in a real browser: what they answer to a script, and how they look."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ddp_perf.report.session_report import PAGE

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
NEEDS_BROWSER = pytest.mark.skipif(
    BROWSER is None, reason="no browser here: apt-get install chromium"
)
DARK = "--blink-settings=preferredColorScheme=0"

# A window has a least width of its own, a frame has none. A page below the frame's directory, too.
AROUND = """<!DOCTYPE html><style>body {{ margin: 0 }} #answer {{ display: none }}</style>
<pre id="answer"></pre>
<iframe src="{page}" width="{width}" height="{height}" style="border: 0"></iframe>
<script>
addEventListener("message", (e) => {{ document.getElementById("answer").textContent = e.data }});
</script>
"""


def look(directory, width, probe, *options, name=PAGE, view=""):
    """Return the answer of a script at the end of the page, and every line of the console.

    ``view`` is what follows # in the address.
    """
    page = directory / name
    text, _, _ = page.read_text(encoding="utf-8").rpartition("</body>")  # Vega has one, too
    probed = page.with_name("probed.html")
    probed.write_text(text + probe, encoding="utf-8")
    around = _around(directory, f"{probed.relative_to(directory)}#{view}", width, 900)
    done = _browse(directory, "--window-size=1600,1000", "--dump-dom", *options, around.as_uri())
    answer = re.search(r'<pre id="answer">(.+?)</pre>', done.stdout, flags=re.DOTALL)
    assert answer, done.stderr
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(html.unescape(answer[1])), console


def picture(directory, width, height, *options, name=PAGE, view="") -> bytes:
    """Return a PNG of the page."""
    around = _around(directory, f"{name}#{view}", width, height)
    file = directory / "picture.png"
    size = f"--window-size={width},{height}"
    _browse(directory, size, f"--screenshot={file}", *options, around.as_uri())
    return file.read_bytes()


def _around(directory: Path, page: str, width: int, height: int) -> Path:
    around = directory / "around.html"
    around.write_text(AROUND.format(page=page, width=width, height=height), encoding="utf-8")
    return around


def _browse(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *(f"--user-data-dir={directory / 'profile'}", "--enable-logging=stderr"),
            *("--virtual-time-budget=5000", *arguments),
        ],
        capture_output=True,
        text=True,
        timeout=300,
    )
