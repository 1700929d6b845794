"""The page in a real browser: no errors, every plot on the screen, tables that can be sorted."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.report.directory import write_report, write_work_report
from ddp_perf.report.work_rows import WORK_PAGE
from ddp_perf.work.values import Place
from tests.browsers import NEEDS_BROWSER, look
from tests.builders import HOSTILE, make_cases, make_hostile_result
from tests.reports import make_source, make_suite_result
from tests.work_reports import A100, make_change, make_counted, make_same
from tests.works import SITE

pytestmark = NEEDS_BROWSER

# Asks the page, and sends the answers as JSON to the one around it.
PROBE = """
<script>
const drawn = async () => {
  while (window.vegaEmbed && !document.body.dataset.drawn) {
    await new Promise((done) => setTimeout(done, 20));
  }
};
addEventListener("load", async () => {
  await drawn();
  for (const fold of document.querySelectorAll("details")) fold.open = true;
  const table = document.querySelector("table.figures");
  const column = (n) => [...table.tBodies[0].rows].map((row) => row.cells[n].textContent);
  const headings = [...table.tHead.rows[0].cells].map((heading) => heading.textContent);
  const step = Math.max(1, headings.findIndex((text) => text.startsWith("step")));  // else verdicts
  const button = table.tHead.rows[0].cells[step].querySelector(".sort");
  const before = column(step);
  button.click(); const up = column(step);
  button.click(); const down = column(step);
  const pictures = [...document.querySelectorAll(".chart svg")];
  const shapes = pictures.map((svg) => {
    const box = svg.getBoundingClientRect();
    const marks = svg.querySelectorAll(".mark-symbol path, .mark-rect path, .mark-rule line");
    const drawn = [...marks].map((m) => m.getBBox()).filter((b) => b.width + b.height > 0);
    return {width: box.width, height: box.height, right: box.right, drawn: drawn.length,
            bad: /NaN|undefined/.test(svg.outerHTML)};
  });
  const right = (element) => element.getBoundingClientRect().right;
  const plots = [...document.querySelectorAll(".plots")];
  const frame = table.closest(".wide");
  const answer = {
    verdict: right(table.tBodies[0].rows[0].cells[1]),
    scrolls: frame.scrollWidth > frame.clientWidth,
    hint: getComputedStyle(frame, "::before").content,
    unused: plots.map((grid) => right(grid) - Math.max(...[...grid.children].map(right))),
    widest: Math.max(...pictures.map((picture) => picture.getBoundingClientRect().width)),
    shapes, before, up, down, sorted: table.tHead.rows[0].cells[step].ariaSort,
    wide: document.documentElement.scrollWidth, inner: innerWidth,
    background: getComputedStyle(document.body).backgroundColor,
    loaded: performance.getEntriesByType("resource").map((r) => r.name),
  };
  parent.postMessage(JSON.stringify(answer), "*");
});
</script></body>
"""


@pytest.mark.parametrize("width", [390, 1280, 1400])
@pytest.mark.parametrize(
    "result", [make_suite_result(), make_hostile_result()], ids=["usual", "hostile"]
)
def test_every_plot_is_drawn_within_the_screen_without_errors(tmp_path, result, width):
    write_report(tmp_path, make_source(result))

    seen, console = look(tmp_path, width, PROBE)

    assert console == []
    assert seen["loaded"] == []
    assert seen["inner"] == width
    assert seen["wide"] <= width
    assert seen["shapes"]
    for shape in seen["shapes"]:
        assert shape["width"] > 250
        assert shape["right"] <= width
        assert shape["drawn"] > 0
        assert not shape["bad"]


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("text", ["return self.norm(x)", HOSTILE], ids=["usual", "hostile"])
def test_the_page_of_work_fits_the_screen_without_errors(tmp_path, text, width):
    site = msgspec.structs.replace(SITE, text=text * 5, function=text)
    change = make_change(places=(Place(site=site, count=2),))
    one, two = make_cases(tier="gpu")
    counted = [make_counted(change, case=one, reason=text), make_same(case=two)]
    write_work_report(tmp_path, counted, {one.suite: (A100, "v100-pcie-16gb")})

    seen, console = look(tmp_path, width, PROBE, name=WORK_PAGE)

    assert console == []
    assert seen["loaded"] == []
    assert seen["wide"] <= width
    assert seen["verdict"] <= width
    assert [verdict[2:] for verdict in seen["up"]] == ["PASS", "REGRESSION"]


def test_on_a_phone_each_verdict_is_on_the_screen_and_the_table_says_that_it_scrolls(tmp_path):
    write_report(tmp_path, make_source())

    seen, _ = look(tmp_path, 390, PROBE)

    assert seen["verdict"] <= 390
    assert seen["scrolls"]
    assert "scroll for more columns" in seen["hint"]


def test_plots_fill_the_width_of_a_laptop(tmp_path):
    write_report(tmp_path, make_source())

    seen, _ = look(tmp_path, 1280, PROBE)

    assert max(map(abs, seen["unused"])) < 2
    assert seen["widest"] > 0.45 * 1280


def test_a_table_can_be_sorted_by_figures_in_both_directions(tmp_path):
    write_report(tmp_path, make_source())

    seen, _ = look(tmp_path, 1400, PROBE)

    assert seen["before"] == ["10.00", "15.00", "20.00", "–"]  # the last one failed
    assert seen["up"] == ["10.00", "15.00", "20.00", "–"]
    assert seen["down"] == ["20.00", "15.00", "10.00", "–"]
    assert seen["sorted"] == "descending"


def test_the_page_is_dark_if_the_reader_prefers_it(tmp_path):
    write_report(tmp_path, make_source())

    light, _ = look(tmp_path, 1400, PROBE)
    dark, _ = look(tmp_path, 1400, PROBE, "--blink-settings=preferredColorScheme=0")

    assert light["background"] == "rgb(255, 255, 255)"
    assert dark["background"] == "rgb(15, 19, 23)"


# Points at a mark, and turns the wheel with Ctrl over the same chart.
USED = """
<script>
addEventListener("load", async () => {
  while (!document.body.dataset.drawn) await new Promise((done) => setTimeout(done, 20));
  const chart = [...document.querySelectorAll(".chart")].find(
    (one) => one.querySelector("figcaption").textContent.includes("Throughput"));
  chart.scrollIntoView();
  const labels = () => [...chart.querySelectorAll(".role-axis-label text")];
  const ticks = () => labels().map((label) => label.textContent);
  const point = [...chart.querySelectorAll(".mark-symbol.role-mark path")].pop();
  const box = point.getBoundingClientRect();
  const at = {bubbles: true, clientX: box.x + box.width / 2, clientY: box.y + box.height / 2};
  point.dispatchEvent(new MouseEvent("mousemove", at));
  point.dispatchEvent(new PointerEvent("pointermove", at));
  await new Promise((done) => setTimeout(done, 200));
  const tip = document.getElementById("vg-tooltip-element")?.textContent;
  const before = ticks();
  const turn = (ctrlKey) => point.dispatchEvent(
    new WheelEvent("wheel", {...at, deltaY: -500, ctrlKey, cancelable: true}));
  turn(false);
  await new Promise((done) => setTimeout(done, 200));
  const scrolled = ticks();
  turn(true);
  await new Promise((done) => setTimeout(done, 200));
  const what = document.querySelector(".what");
  what.click();
  const meaning = document.getElementById(what.getAttribute("popovertarget"));
  const answer = {tip, before, scrolled, zoomed: ticks(),
                  meaning: meaning.matches(":popover-open") && meaning.textContent};
  parent.postMessage(JSON.stringify(answer), "*");
});
</script></body>
"""


def test_a_chart_answers_to_pointing_and_zooms_and_a_column_is_explained_where_it_stands(tmp_path):
    write_report(tmp_path, make_source())

    seen, console = look(tmp_path, 1280, USED)

    assert console == []
    assert "mlp-ddp-fp32-ws2" in seen["tip"]
    assert seen["scrolled"] == seen["before"]  # the wheel alone scrolls the page
    assert seen["zoomed"] != seen["before"]
    assert seen["meaning"].startswith("case: workload, technique, ")
