"use strict";
// Each figure is a Vega-Lite definition with rows. Toggling an arm or a seed replaces the rows of
// all views; changing the width or the axis renders a figure again. A table of values below each
// figure makes it accessible to keyboards and screen readers.
const WIDEST = 620, LEAST_PANEL = 90, ROUND_UP = 0.35, WIDER = 2.2, SYMBOL = 40, CHARACTER = 7;
const PANEL_ROOM = 66, HIGHEST_PANEL = 240, ASPECT = 0.8;
const MOST_EACH = 200, MOST_VALUES = 400;  // rows with one for each seed, and at all
const FILLED = 0.8;  // of the cells of a table with a column for each arm, at least
const form = document.getElementById("toggles");
const views = {};

function rowsOf(columns) {
  const keys = Object.keys(columns);
  return columns[keys[0]].map((_, i) => {
    const row = {};
    for (const key of keys) {
      const value = columns[key][i];
      if (value !== null && value !== undefined) row[key] = value;
    }
    return row;
  });
}

function hidden(name) {
  if (!form) return new Set();
  const boxes = form.querySelectorAll(`input[name="${name}"]`);
  return new Set([...boxes].filter((box) => !box.checked).map((box) => box.value));
}

function shown(figure) {
  const arms = hidden("arm"), seeds = hidden("seed");
  return figure.rows.filter((row) =>
    !arms.has(row.arm) && !arms.has(row.of) && !seeds.has(String(row.seed)));
}

function withAxis(node, type) {
  if (Array.isArray(node)) return node.map((part) => withAxis(part, type));
  if (node === null || typeof node !== "object") return node;
  const copy = {};
  for (const [key, value] of Object.entries(node)) {
    copy[key] = key === "y" && value.scale
      ? { ...value, scale: type === "log" ? { type, nice: false } : { type, zero: false } }
      : withAxis(value, type);
  }
  return copy;
}

function fitted(figure, room) {
  let definition = structuredClone(figure.definition);
  const axis = form?.elements.axis?.value ?? "";
  if (axis && figure.log) definition = withAxis(definition, axis);
  definition.datasets = { ...definition.datasets, [figure.name]: shown(figure) };
  if (figure.panel) {
    const fit = Math.max(1, Math.floor(room / (figure.panel + PANEL_ROOM) + ROUND_UP));
    const n = new Set(figure.columns[definition.facet.field]).size;
    const columns = Math.ceil(n / Math.ceil(n / fit));
    definition.columns = columns;
    const width = Math.max(LEAST_PANEL, Math.min(figure.panel * WIDER, room / columns - PANEL_ROOM));
    definition.spec.width = width;
    definition.spec.height = Math.max(definition.spec.height, Math.min(HIGHEST_PANEL, ASPECT * width));
  } else {
    definition.width = Math.min(WIDEST, room);
    definition.autosize = { type: "fit-x", contains: "padding" };
  }
  const named = ["arm", "word"].flatMap((field) => figure.columns[field] ?? []);
  const longest = named.reduce((most, name) => Math.max(most, name?.length ?? 0), 0);
  const entry = longest * CHARACTER + SYMBOL, wide = figure.panel ? room : Math.min(room, WIDEST);
  const entries = Math.max(1, Math.min(4, Math.floor((wide - 66) / entry)));
  Object.assign(definition.config.legend, { columns: entries, labelLimit: Math.floor(wide / entries) - SYMBOL });
  return definition;
}

async function drawFigure(figure) {
  const place = document.getElementById(`figure-${figure.name}`);
  if (!place) return;
  if (place.closest("details:not([open])")) return;  // folded: drawn when it is opened
  const room = place.clientWidth;
  views[figure.name]?.view.finalize();
  views[figure.name] = await vegaEmbed(place, fitted(figure, room), { renderer: "svg", actions: false });
  // The label describes the figure; without it, screen readers would read single marks.
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", figure.definition.description);
  place.querySelector("svg").setAttribute("aria-hidden", "true");
}

async function drawAll(which = figures) {
  for (const figure of which) await drawFigure(figure);
}

async function change(event) {
  if (event.target.name === "axis") return drawAll(figures.filter((figure) => figure.log));
  for (const figure of figures) {
    const found = views[figure.name];
    if (found) await found.view.data(figure.name, shown(figure)).runAsync();
  }
  document.querySelectorAll("details.values[open]").forEach(fillValues);
}

// Fields of a chart with their axis titles: `values` are plotted, `keys` identify a point or a line.
function fieldsOf(figure) {
  const keys = new Map(), values = new Map();
  const note = (into, one) => {
    const title = [one.title ?? (one.field === "x" ? "spent" : one.field)].flat().join(" ");
    if (!into.has(one.field) || one.title) into.set(one.field, title);
  };
  const walk = (node) => {
    if (node === null || typeof node !== "object") return;
    if (Array.isArray(node)) return node.forEach(walk);
    const channels = node.encoding ?? {};
    const along = channels.y?.type === "quantitative" || channels.y2 ? "y" : "x";
    for (const [channel, of] of Object.entries(channels)) {
      const isValue = channel.startsWith(along) || (channels.order && channel === "x");
      for (const one of [of].flat()) {
        if (!one?.field || !(one.field in figure.columns)) continue;
        if (isValue && channel !== "xOffset") note(values, one);
        else if (["x", "y", "detail", "color"].includes(channel)) note(keys, one);
      }
    }
    for (const [key, part] of Object.entries(node)) if (key !== "encoding") walk(part);
  };
  const { facet } = figure.definition;
  if (facet?.field) note(keys, { field: facet.field });
  walk(figure.definition);
  for (const field of values.keys()) keys.delete(field);
  if (keys.delete("seed")) keys.set("seed", "seed");  // last
  const titles = [...values.values()];
  if (new Set(titles).size < titles.length) for (const field of values.keys()) values.set(field, field);
  return { keys, values };
}

function number(value) {
  return typeof value === "number" ? String(Number(value.toPrecision(6))) : value ?? "";
}

// Merge rows with equal keys, averaging their values.
function meanOf(rows, keys, values) {
  const groups = new Map();
  for (const row of rows) {
    const key = JSON.stringify(keys.map((field) => row[field]));
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(row);
  }
  return [...groups.values()].map((group) => {
    const one = Object.fromEntries(keys.map((field) => [field, group[0][field]]));
    for (const field of values) {
      const there = group.map((row) => row[field]).filter((value) => typeof value === "number");
      if (there.length) one[field] = there.reduce((sum, value) => sum + value, 0) / there.length;
    }
    return one;
  });
}

// Table of a figure's values as {head, lines, said}, for the selected arms and seeds.
function valuesOf(figure) {
  const { keys, values } = fieldsOf(figure);
  let rows = shown(figure), said = "";
  if (figure.columns.point) {  // x differs between seeds, so it is a value, too
    values.set("x", keys.get("x") ?? values.get("x"));
    keys.delete("x");
    keys.set("point", "point");
  }
  const means = rows.some((row) => row.kind === "mean");
  if (means) rows = rows.filter((row) => row.kind !== "seed");
  if (new Set(rows.map((row) => row.kind)).size > 1) keys.set("kind", "what");
  if (means || rows.length > MOST_EACH) keys.delete("seed");
  const seeds = rows.some((row) => row.seed !== undefined);
  let by = [...keys.keys()].filter((field) => rows.some((row) => row[field] !== undefined));
  const numbers = [...values.keys()].filter((field) => rows.some((row) => row[field] !== undefined));
  if (seeds && !keys.has("seed")) {
    rows = meanOf(rows, by, numbers);
    said = "Means over seeds. ";
  }
  let head = [...by.map((field) => keys.get(field)), ...numbers.map((field) => values.get(field))];
  let lines = rows.map((row) => [...by, ...numbers].map((field) => number(row[field])));
  const arms = [...new Set(rows.map((row) => row.arm))];
  if (by.includes("arm") && numbers.length === 1 && arms.length > 1) {  // a column for each arm
    const rest = by.filter((field) => field !== "arm"), found = new Map();
    for (const row of rows) {
      const key = JSON.stringify(rest.map((field) => row[field]));
      if (!found.has(key)) found.set(key, { row, cells: {} });
      found.get(key).cells[row.arm] = row[numbers[0]];
    }
    if (rows.length > FILLED * found.size * arms.length) {
      head = [...rest.map((field) => keys.get(field)), ...arms];
      lines = [...found.values()].map(({ row, cells }) =>
        [...rest.map((field) => number(row[field])), ...arms.map((arm) => number(cells[arm]))]);
      said = `${values.get(numbers[0])}. ${said}`;
    }
  }
  const every = Math.ceil(lines.length / MOST_VALUES);
  if (every > 1) {
    lines = lines.filter((line, i) => i % every === 0 || i === lines.length - 1);
    said += `One in ${every} rows. `;
  }
  return { head, lines, said };
}

function fillValues(place) {
  const figure = figures.find((one) => one.name === place.dataset.figure);
  const { head, lines, said } = valuesOf(figure);
  const make = (name, of = {}, parts = []) => {
    const made = Object.assign(document.createElement(name), of);
    made.append(...parts);
    return made;
  };
  const cells = (line, name, more = {}) => make("tr", {}, line.map((text) => make(name, { textContent: text, ...more })));
  const table = make("table", {}, [
    ...(said ? [make("caption", {}, [make("span", { textContent: said.trim() })])] : []),
    make("thead", {}, [cells(head, "th", { scope: "col" })]),
    make("tbody", {}, lines.map((line) => cells(line, "td"))),
  ]);
  const region = make("div", { className: "scroll", tabIndex: 0 }, [table]);
  region.setAttribute("role", "region");
  region.setAttribute("aria-label", `Values: ${place.parentElement.querySelector("h3").textContent}`);
  place.querySelector(".scroll")?.remove();
  place.append(region);
}

for (const figure of figures) figure.rows = rowsOf(figure.columns);
window.report = { views, ready: drawAll(), done: null };
if (form) {
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", (event) => { window.report.done = change(event); });
}
function open() {
  const place = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const folded = place?.closest("details");
  if (folded) folded.open = true;
}
document.addEventListener("toggle", (event) => {
  if (!event.target.open) return;
  if (event.target.matches("details.values")) return fillValues(event.target);
  const inside = figures.filter((figure) => !views[figure.name] && event.target.contains(document.getElementById(`figure-${figure.name}`)));
  window.report.done = Promise.all([window.report.done, drawAll(inside)]);
}, true);
window.addEventListener("hashchange", open);
open();
let width = window.innerWidth, timer;
window.addEventListener("resize", () => {
  if (window.innerWidth === width) return;
  width = window.innerWidth;
  clearTimeout(timer);
  timer = setTimeout(drawAll, 200);
});
