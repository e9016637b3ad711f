"use strict";
// Each figure is a Vega-Lite definition and its rows. Toggling an arm or a seed replaces the rows
// of every view; another width or axis draws a figure again.
const WIDEST = 620, LEAST_PANEL = 90, ROUND_UP = 0.35, WIDER = 1.4, LABEL = 130;
const form = document.getElementById("toggles");
const views = {};

function rowsOf(columns) {
  const keys = Object.keys(columns);
  const read = keys.map((key) => {
    const column = columns[key];
    return column.words ? (i) => column.words[column.at[i]] : (i) => column[i];
  });
  const first = columns[keys[0]];
  const n = first.words ? first.at.length : first.length;
  return Array.from({ length: n }, (_, i) => {
    const row = {};
    keys.forEach((key, k) => {
      const value = read[k](i);
      if (value !== null && value !== undefined) row[key] = value;
    });
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
    const fit = Math.max(1, Math.floor(room / (figure.panel + figure.room) + ROUND_UP));
    const n = figure.columns[definition.facet.field].words.length;
    const columns = Math.ceil(n / Math.ceil(n / fit));
    definition.columns = columns;
    definition.spec.width = Math.max(LEAST_PANEL, Math.min(figure.panel * WIDER, room / columns - figure.room));
  } else {
    definition.width = Math.min(WIDEST, room);
    definition.autosize = { type: "fit-x", contains: "padding" };
  }
  const longest = Math.max(0, ...figure.columns.arm?.words.map((name) => name.length) ?? []);
  const entry = Math.min(LABEL, longest * 7) + 40;
  definition.config.legend.columns =
    Math.max(1, Math.min(4, Math.floor((Math.min(room, WIDEST) - 66) / entry)));
  return definition;
}

async function drawFigure(figure) {
  const place = document.getElementById(`figure-${figure.name}`);
  if (!place) return;
  const room = place.clientWidth;
  if (!room) return;  // folded: drawn when it is opened
  views[figure.name]?.view.finalize();
  views[figure.name] = await vegaEmbed(place, fitted(figure, room), { renderer: "svg", actions: false });
  // Its label says what is drawn; single marks would be read without it.
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
