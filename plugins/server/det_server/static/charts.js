// @ts-check
/** Charts of a page: they are made when they come into view, and follow what trials report and what the reader chooses. */
import { Chart } from "./chart.js";
import { refreshSoon, withRetries } from "./live.js";
import { setSwitches, switches } from "./view_state.js";

/** Milliseconds after a report until the page asks whether there are new metrics. */
const NAMES_MS = 3000;

const controls = /** @type {HTMLFormElement | null} */ (document.querySelector(".chart-controls"));

/** @type {Chart[]} */
const charts = [];
const seen = new IntersectionObserver(
  (entries) => {
    for (const entry of entries.filter((each) => each.isIntersecting)) {
      seen.unobserve(entry.target);
      const chart = new Chart(/** @type {HTMLElement} */ (entry.target));
      charts.push(chart);
      chart.start();
    }
  },
  { rootMargin: "200px" },
);

/** Draw the charts of the page that have no drawing yet, when they come into view. */
function observeFigures() {
  const known = new Set(charts.map((chart) => chart.figure));
  for (const figure of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(".chart[data-src]"))) {
    if (!known.has(figure)) seen.observe(figure);
  }
}

observeFigures();
document.addEventListener("det:refreshed", () => {
  charts.splice(0, charts.length, ...charts.filter((chart) => chart.figure.isConnected));
  charts.forEach((chart) => chart.followSource());
  observeFigures();
});
document.addEventListener("det:metrics", (event) => {
  const reported = /** @type {CustomEvent<Set<number>>} */ (event).detail;
  for (const chart of charts) {
    const changed = chart.trials().filter((id) => reported.has(id));
    if (changed.length) chart.update(changed);
  }
  checkNamesSoon();
});
document.addEventListener("det:rows", (event) => {
  for (const [key, values] of Object.entries(/** @type {CustomEvent<Record<string, Record<string, string>>>} */ (event).detail)) {
    if (key.startsWith("trial/") && "run" in values) charts.forEach((chart) => chart.restarted.add(Number(key.slice(6))));
  }
});
document.addEventListener("det:reload", () => charts.forEach((chart) => chart.reload()));
document.addEventListener("det:system_metrics", (event) => {
  if (document.querySelector("#utilization .empty")) refreshSoon("utilization");
  for (const chart of charts.filter((each) => each.isOverTime)) {
    chart.update([.../** @type {CustomEvent<Set<number>>} */ (event).detail]);
  }
});

let checking = 0;
/** Refresh the charts, at most every few seconds, if trials have begun to report metrics that the page does not know. */
function checkNamesSoon() {
  if (document.querySelector("[data-names-src]")) checking ||= window.setTimeout(() => ((checking = 0), checkNames()), NAMES_MS);
}

const checkNames = withRetries(async () => {
  const region = /** @type {HTMLElement | null} */ (document.querySelector("[data-names-src]"));
  if (!region) return;
  const answer = await fetch(region.dataset.namesSrc ?? "");
  if (!answer.ok) throw new Error(answer.statusText);
  if (JSON.stringify((await answer.json()).names) !== JSON.stringify(JSON.parse(region.dataset.names ?? "[]"))) refreshSoon("charts", "series");
});

if (controls) {
  const { axis, log, weight } = switches();
  const choice = /** @type {HTMLSelectElement} */ (controls.elements.namedItem("axis"));
  const logBox = /** @type {HTMLInputElement} */ (controls.elements.namedItem("log"));
  const slider = /** @type {HTMLInputElement} */ (controls.elements.namedItem("smooth"));
  choice.value = axis;
  logBox.checked = log;
  slider.value = String(weight);
  controls.hidden = false;
  controls.addEventListener("input", () => {
    const isOtherAxis = choice.value !== switches().axis;
    setSwitches({ axis: choice.value, log: logBox.checked, weight: Number(slider.value) });
    for (const chart of charts.filter((each) => each.series.length)) {
      if (isOtherAxis && !chart.isOverTime) chart.changeAxis();
      else chart.show();
    }
  });
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
  charts.forEach((chart) => chart.u && chart.build(chart.log ?? false)),
);
