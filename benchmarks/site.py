"""Measure the site of many sessions: how long it takes to write, its sizes, and how fast it opens.

    python benchmarks/site.py [CASES SESSIONS]

A page is open when its load event is over and each chart in an open fold is drawn, in Chromium, of
which one cold start comes first.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from ddp_perf.history.store import HistoryStore
from ddp_perf.site.pages import INDEX, write_site
from ddp_perf.site.views import views_of
from tests.browsers import look
from tests.histories import fill_history

OPENINGS = 9
WAIT = """
<script>
addEventListener("load", async () => {
  while (window.vegaEmbed && !document.querySelector(".chart svg")) {
    await new Promise((done) => setTimeout(done, 1));
  }
  parent.postMessage(JSON.stringify(performance.now()), "*");
});
</script></body>
"""


def main() -> None:
    cases, sessions = (int(one) for one in sys.argv[1:3] or ("100", "1000"))
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        url = f"sqlite:///{directory / 'history.sqlite'}"
        fill_history(url, cases=cases - 1, sessions=sessions)  # one is on both machines
        began = time.perf_counter()
        store = HistoryStore(url)
        views = views_of(store)
        write_site(directory / "site", views)
        store.close()
        took = time.perf_counter() - began
        print(f"{len(views.cases)} cases, {sessions:,} sessions: written in {took:.0f} s")
        case = f"cases/{views.cases[0].file}"
        for page in (INDEX, case, "regressions.html", "charts.js"):
            size = (directory / "site" / page).stat().st_size
            print(f"{page.partition('/')[0]}: {size / 1e6:.2f} MB")
        whole = sum(one.stat().st_size for one in (directory / "site").rglob("*.*"))
        print(f"the site: {whole / 1e6:.0f} MB")
        for page in (INDEX, case):
            opened = [look(directory / "site", 1280, WAIT, name=page)[0] for _ in range(OPENINGS)]
            middle, worst = statistics.median(opened[1:]), max(opened[1:])
            print(f"{page.partition('/')[0]} opens in {middle:.0f} ms (worst {worst:.0f} ms)")


if __name__ == "__main__":
    main()
