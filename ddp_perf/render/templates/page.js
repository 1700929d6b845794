// Sort a table by the column whose heading is pressed; a second time, the other way round.
// Cells without a figure come last either way.
for (const button of document.querySelectorAll("th .sort")) {
  button.addEventListener("click", () => {
    const heading = button.closest("th"), body = heading.closest("table").tBodies[0];
    const column = heading.cellIndex, up = heading.ariaSort !== "ascending";
    for (const other of heading.parentNode.cells) other.removeAttribute("aria-sort");
    heading.ariaSort = up ? "ascending" : "descending";
    const value = (row) => row.cells[column].dataset.v ?? "";
    const order = (a, b) => {
      const x = value(a), y = value(b);
      if (x === "" || y === "") return (x === "") - (y === "");
      const found = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
      return up ? found : -found;
    };
    body.append(...[...body.rows].sort(order));
  });
}
// Show above a table that it scrolls, if it does.
function hint() {
  for (const frame of document.querySelectorAll(".wide")) {
    frame.classList.toggle("scrolls", frame.scrollWidth > frame.clientWidth + 1);
  }
}
addEventListener("resize", hint);
hint();
// Draw the charts one after another, so that a long page answers meanwhile. A chart in a closed fold
// has no width before the fold is opened.
async function draw() {
  for (const figure of document.querySelectorAll("figure.chart")) {
    const spec = JSON.parse(figure.querySelector("script").textContent);
    const place = figure.appendChild(document.createElement("div"));
    await vegaEmbed(place, spec, {
      actions: false, renderer: "svg", ast: true,
    });
    await new Promise((done) => setTimeout(done));
  }
  document.body.dataset.drawn = "all";
}
if (window.vegaEmbed) draw();
for (const fold of document.querySelectorAll("details")) {
  fold.addEventListener("toggle", () => dispatchEvent(new Event("resize")));
}
