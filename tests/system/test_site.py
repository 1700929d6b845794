"""A site in a real browser: what a reader can do with it, who can read it, and how it looks."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

from ddp_perf.report.directory import write_report
from ddp_perf.site.pages import INDEX, write_site
from tests.browsers import DARK, NEEDS_BROWSER, look, picture
from tests.histories import MACHINES, views_of_history
from tests.projects import REPOSITORY
from tests.reports import make_source, make_suite_result

pytestmark = NEEDS_BROWSER

ASK = """
<script>
const drawn = async () => {
  while (window.vegaEmbed && !document.body.dataset.drawn) {
    await new Promise((done) => setTimeout(done, 20));
  }
};
addEventListener("load", async () => {
  await drawn();
  for (const fold of document.querySelectorAll("details")) fold.open = true;
  const answer = await (async () => { BODY })();
  parent.postMessage(JSON.stringify(answer), "*");
});
</script></body>
"""
ROWS = """
  const table = document.querySelector("main table");
  const rows = [...table.tBodies[0].rows].filter((row) => !row.hidden);
  return {
    newest: rows.map((row) => Number(row.cells[3].dataset.v)),
    names: rows.map((row) => row.cells[0].textContent),
    machines: [...new Set(rows.map((row) => row.cells[7].textContent))],
    shown: document.querySelector(".filters .soft").textContent,
    wide: document.documentElement.scrollWidth,
  };
"""
CHOOSE = """
  const choice = [...document.querySelectorAll(".filters label")].find(
    (label) => label.textContent.startsWith("machine")).querySelector("select");
  choice.value = "MACHINE";
  choice.dispatchEvent(new Event("input", {bubbles: true}));
  [...document.querySelectorAll("th .sort")].find((one) => one.textContent === "newest").click();
  return location.hash;
"""
CHARTS = """
  return {
    charts: [...document.querySelectorAll(".chart svg")].map(
      (svg) => svg.querySelectorAll(".mark-symbol.role-mark path").length),
    days: [...document.querySelector(".chart svg").querySelectorAll(".role-axis-label text")].map(
      (one) => one.textContent),
    wide: document.documentElement.scrollWidth,
  };
"""
AXE = """
  await new Promise((done) => {
    const script = document.createElement("script");
    script.src = "AXE";
    script.onload = done;
    document.head.append(script);
  });
  const found = await axe.run(document, {resultTypes: ["violations"]});
  return found.violations.map((one) => [one.id, one.impact, one.nodes.map((node) => node.html)]);
"""


@pytest.fixture(scope="module")
def views(tmp_path_factory):
    with views_of_history(tmp_path_factory.mktemp("history"), cases=10, sessions=90) as views:
        yield views


@pytest.fixture(scope="module")
def written(views, tmp_path_factory):
    directory = tmp_path_factory.mktemp("site")
    write_site(directory, views)
    return directory


@pytest.fixture
def site(written, tmp_path):
    shutil.copytree(written, tmp_path / "site")
    return tmp_path / "site"


def ask(site, body, *, width=1280, name=INDEX, view=""):
    answer, console = look(site, width, ASK.replace("BODY", body), name=name, view=view)
    assert console == []
    return answer


def test_a_choice_and_a_sorting_are_in_the_address_and_a_link_shows_them_again(site):
    address = ask(site, CHOOSE.replace("MACHINE", MACHINES[1]))

    seen = ask(site, ROWS, view=address.lstrip("#"))

    assert seen["machines"] == [MACHINES[1]]
    assert seen["shown"] == "6 of 11 shown"
    assert len(seen["newest"]) == 6
    assert seen["newest"] == sorted(seen["newest"])


def test_a_search_finds_the_cases_that_have_all_its_words(site):
    seen = ask(site, ROWS, view="search=fsdp+xeon")

    assert seen["names"]
    assert all("fsdp" in name for name in seen["names"])
    assert seen["machines"] == [MACHINES[1]]


def test_a_link_to_a_part_of_the_time_shows_that_part(views, site):
    name = f"cases/{views.cases[0].file}"

    whole = ask(site, CHARTS, name=name)
    part = ask(site, CHARTS, name=name, view="zoom0=2026-03-01..2026-03-08")

    assert all(whole["charts"])
    assert any("Mar" in day or "03" in day for day in part["days"])
    assert not any("Jan" in day or "February" in day for day in part["days"])
    assert part["days"] != whole["days"]


@pytest.mark.parametrize("page", ["index", "regressions", "machines", "gate", "case"])
def test_every_page_fits_a_phone_without_errors(views, site, page):
    name = f"cases/{views.cases[0].file}" if page == "case" else f"{page}.html"

    seen = ask(site, "return {wide: document.documentElement.scrollWidth};", width=390, name=name)

    assert seen["wide"] <= 390


@pytest.mark.parametrize("options", [(), (DARK,)], ids=["light", "dark"])
@pytest.mark.parametrize("page", ["index", "regressions", "machines", "gate", "case", "session"])
def test_axe_finds_nothing_serious(views, site, page, options):
    package = importlib.util.find_spec("axe_playwright_python")
    axe = Path(package.submodule_search_locations[0]) / "axe.min.js"
    shutil.copy(axe, site / "axe.js")
    shutil.copy(axe, site / "cases" / "axe.js")
    name = f"cases/{views.cases[0].file}" if page == "case" else f"{page}.html"
    probe = ASK.replace("BODY", AXE.replace("AXE", "axe.js"))
    if page == "session":
        write_report(site, make_source(make_suite_result()))
        name = INDEX
        probe = f"<script>{axe.read_text('utf-8')}</script>" + ASK.replace(
            "BODY", AXE[AXE.index("  const found") :]
        )

    found, _ = look(site, 1280, probe, *options, name=name)

    assert [one for one in found if one[1] in ("serious", "critical")] == []


@pytest.mark.parametrize(
    ("name", "page", "size", "options"),
    [
        ("overview", "index", (1280, 620), ()),
        ("case", "case", (1280, 820), ()),
        ("dark", "case", (1280, 820), (DARK,)),
        ("phone", "index", (390, 800), ()),
        ("session", "session", (1280, 760), ()),
    ],
)
def test_pictures_of_the_documentation(request, views, site, name, page, size, options):
    """With --force-regen they are written to docs/."""
    file = f"cases/{views.cases[0].file}" if page == "case" else INDEX
    if page == "session":
        write_report(site, make_source(make_suite_result()))

    shown = picture(site, *size, *options, name=file)

    assert shown.startswith(b"\x89PNG")
    assert len(shown) > 10_000  # an empty page has 5,000 bytes at most
    if request.config.getoption("force_regen"):
        (REPOSITORY / "docs" / f"site-{name}.png").write_bytes(shown)
