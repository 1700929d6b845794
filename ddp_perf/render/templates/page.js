// The view of a page is in its address, so that a link shows the same: how its first table is sorted
// and filtered, and how far each chart is zoomed.
const view = new URLSearchParams(location.hash.slice(1));
function remember(name, value) {
  if (value) view.set(name, value); else view.delete(name);
  history.replaceState(null, "", view.size ? `#${view}` : location.pathname + location.search);
}
// Sort a table by the column whose heading is pressed; a second time, the other way round.
// Cells without a figure come last either way.
function sort(button, up) {
  const heading = button.closest("th"), body = heading.closest("table").tBodies[0];
  const column = heading.cellIndex;
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
}
const first = document.querySelector("main table");
for (const button of document.querySelectorAll("th .sort")) {
  const heading = button.closest("th"), kept = first?.contains(heading);
  button.addEventListener("click", () => {
    const up = heading.ariaSort !== "ascending";
    sort(button, up);
    if (kept) remember("sort", `${up ? "" : "-"}${button.textContent}`);
  });
  const wanted = view.get("sort") ?? "";
  if (kept && wanted.replace(/^-/, "") === button.textContent) sort(button, !wanted.startsWith("-"));
}
// Above a table with such columns: a search in all its words, and a choice for each column.
function filters(table) {
  const columns = [...table.tHead.rows[0].cells].filter((heading) => "filter" in heading.dataset);
  if (!columns.length || table.tBodies[0].rows.length < 2) return;
  const rows = [...table.tBodies[0].rows], bar = document.createElement("form");
  const word = (row, column) => row.cells[column.cellIndex].textContent.replace(/^[✗?✓·]\s/, "");
  const controls = new Map(), shown = document.createElement("span");
  const add = (name, control) => {
    const label = document.createElement("label");
    label.append(name, control);
    bar.append(label);
    controls.set(name, control);
    control.value = view.get(name) ?? "";
  };
  add("search", Object.assign(document.createElement("input"), {type: "search"}));
  for (const column of columns) {
    const name = column.querySelector(".sort").textContent, choice = document.createElement("select");
    const values = [...new Set(rows.map((row) => word(row, column)))];
    values.sort((a, b) => a.localeCompare(b, "en", {numeric: true}));
    choice.append(new Option("all", ""), ...values.map((value) => new Option(value, value)));
    add(name, choice);
  }
  const apply = () => {
    const search = controls.get("search").value.toLowerCase().split(/\s+/);
    const chosen = columns.map((column) => [column, controls.get(column.querySelector(".sort").textContent).value]);
    let count = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !(search.every((part) => text.includes(part))
        && chosen.every(([column, value]) => !value || word(row, column) === value));
      count += !row.hidden;
    }
    shown.textContent = `${count} of ${rows.length} shown`;
    for (const [name, control] of controls) remember(name, control.value);
  };
  bar.className = "filters";
  shown.className = "soft";
  shown.role = "status";
  bar.append(shown);
  bar.addEventListener("input", apply);
  bar.addEventListener("submit", (event) => event.preventDefault());
  (table.closest(".wide") ?? table).before(bar);
  apply();
}
if (first) filters(first);
// Show above a table that it scrolls, if it does.
function hint() {
  for (const frame of document.querySelectorAll(".wide")) {
    frame.classList.toggle("scrolls", frame.scrollWidth > frame.clientWidth + 1);
  }
}
addEventListener("resize", hint);
hint();
// What moves the axes of a chart of sessions, which has a name of its own in each chart.
function zoomOf(spec) {
  const ofSessions = spec.layer?.some((layer) => layer.encoding?.x?.field === "date");
  return ofSessions && spec.params?.find((one) => one.bind === "scales");
}
// The figures of a page are listed by field. A chart has them by row.
function byRow(columns) {
  const fields = Object.keys(columns);
  return (columns[fields[0]] ?? []).map((_, row) =>
    Object.fromEntries(fields.map((field) => [field, columns[field][row]]).filter(([, value]) => value !== null)));
}
// Draw the charts one after another, so that a long page answers meanwhile: first those in an open
// fold. A chart in a closed fold has no width before the fold is opened.
async function draw() {
  const isOpen = (figure) => figure.closest("details")?.open ?? true;
  const figures = [...document.querySelectorAll("figure.chart")];
  for (const figure of [...figures.filter(isOpen), ...figures.filter((one) => !isOpen(one))]) {
    const spec = JSON.parse(figure.querySelector("script").textContent), zoom = zoomOf(spec);
    const name = `zoom${figures.indexOf(figure)}`;
    const kept = view.get(name)?.split("..").map((day) => Date.parse(day));
    for (const data in spec.datasets) spec.datasets[data] = byRow(spec.datasets[data]);
    const place = figure.appendChild(document.createElement("div"));
    const {view: chart} = await vegaEmbed(place, spec, {
      actions: false, renderer: "svg", ast: true,
    });
    const minute = (time) => `${new Date(time).toISOString().slice(0, 16)}Z`;
    const isShown = (time) => Math.abs(time) < 8e15;  // more is no date
    if (zoom && kept?.length === 2 && kept[0] < kept[1]) {
      for (const {field, channel} of chart.signal(`${zoom.name}_tuple_fields`)) {
        chart.signal(`${zoom.name}_${field}`, channel === "x" ? kept : chart.scale("y").domain());
      }
      await chart.runAsync();
    }
    if (zoom) chart.addSignalListener(zoom.name, (_, moved) =>
      remember(name, moved.date?.every(isShown) && moved.date.map(minute).join("..")));
    await new Promise((done) => setTimeout(done));
  }
  document.body.dataset.drawn = "all";
}
if (window.vegaEmbed) draw();
for (const fold of document.querySelectorAll("details")) {
  fold.addEventListener("toggle", () => dispatchEvent(new Event("resize")));
}
