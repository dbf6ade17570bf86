// @ts-check
/** Charts of curves. uPlot has the axes, the zoom and the cursor; the curves are drawn here, each with its own steps. */
import { color, css, drawCurves, drawPoint } from "./curve_painter.js";
import { RANKED, findRange, format, nearestIndex, replacePart, smooth, toSvg } from "./curves.js";
import { showLegend } from "./legend.js";
import { refreshSoon } from "./live.js";
import { tableOfValues } from "./values_table.js";
import { setSwitches, setZoom, switches, zoomOf } from "./view_state.js";

/** @typedef {import("./curves.js").Series} Series */
/** @type {any} */
const uPlot = /** @type {any} */ (window).uPlot;

/** Number of points after which a curve is fetched again with fewer. The server sends 1,200 at most. */
const MOST_POINTS = 2500;
/** Number of intervals from which the server sends extremes. A curve with more points may lack some of its reports. */
const INTERVALS = 300;
/** Milliseconds after a change of the zoom until the chart asks for the points that it shows now. */
const ZOOM_MS = 200;
/** Milliseconds after a report until the page asks whether there are new metrics. */
const NAMES_MS = 3000;

const controls = /** @type {HTMLFormElement | null} */ (document.querySelector(".chart-controls"));

class Chart {
  /** @param {HTMLElement} figure */
  constructor(figure) {
    this.figure = figure;
    this.plot = /** @type {HTMLElement} */ (figure.querySelector(".plot"));
    this.title = figure.querySelector("figcaption")?.textContent?.trim() ?? "";
    this.unit = figure.dataset.x ?? "";
    this.source = "";
    this.last = 0;
    /** @type {Series[]} */
    this.series = [];
    /** @type {Series[]} */
    this.drawn = [];
    this.u = null;
    this.active = { series: -1, index: 0 };
    this.zoomed = false;
    this.refining = 0;
    this.fetching = false;
    /** @type {Set<number>} */
    this.stale = new Set();
    /** @type {Set<number>} */
    this.restarted = new Set();
    this.tip = document.createElement("div");
    this.tip.className = "tip";
    this.tip.setAttribute("role", "status");
    this.tip.hidden = true;
    this.plot.after(this.tip);
    this.addTools();
    this.plot.addEventListener("keydown", (event) => this.key(event));
    this.details = /** @type {HTMLDetailsElement} */ (figure.querySelector(".values"));
    this.details.addEventListener("toggle", () => this.details.open && this.showTable());
    new ResizeObserver(() => this.u?.setSize(this.size())).observe(this.plot);
  }

  size() {
    return { width: Math.max(this.plot.clientWidth, 120), height: this.plot.clientHeight };
  }

  addTools() {
    const tools = document.createElement("span");
    tools.className = "tools";
    const save = document.createElement("button");
    save.type = "button";
    save.textContent = "SVG";
    save.setAttribute("aria-label", `Save ${this.title} as SVG`);
    save.addEventListener("click", () => this.save());
    tools.append(save);
    this.figure.querySelector("figcaption")?.append(tools);
  }

  /**
   * Fetch the curves.
   * @param {Record<string, string>} [some] parameters for a part of them: the `trials` that changed, and the steps, or ids of samples, `after` and `until` which points are asked for
   */
  async load(some = {}) {
    const { source } = this;
    const url = new URL(source, location.href);
    for (const [name, value] of Object.entries(some)) url.searchParams.set(name, value);
    const answer = await fetch(url);
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.error ?? answer.statusText);
    if (source !== this.source) return;
    const isPart = "after" in some;
    const [after, until] = this.unit === "time" ? [Infinity, Infinity] : [Number(some.after), Number(some.until ?? Infinity)];
    const known = new Map(isPart || "trials" in some ? this.series.map((one) => [one.id, one]) : []);
    for (const one of found.series) {
      const before = isPart && known.get(one.id);
      known.set(one.id, before ? replacePart(before, one, after, until) : one);
    }
    const ranks = new Map(this.trials().map((id, rank) => [id, rank]));
    const rank = (/** @type {Series} */ one) => ranks.get(Number(one.id)) ?? ranks.size;
    this.series = [...known.values()].sort((a, b) => rank(a) - rank(b));
    this.series.forEach((one, position) => (one.rank = position < RANKED ? position : undefined));
    this.last = found.last;
    this.show();
    if (!isPart) this.refineSoon();
  }

  show() {
    const { log, weight } = switches();
    this.drawn = this.series.filter((one) => one.x.length).map((one) => ({ ...one, y: smooth(one.y, weight) }));
    this.figure.dataset.state = this.drawn.length ? "drawn" : "empty";
    showLegend(this.figure, this.series.filter((one) => one.x.length || one.note));
    if (!this.drawn.length) return this.say("No finite values yet.", "note");
    this.plot.querySelector(":scope > p")?.remove();
    if (!this.u || this.log !== log) this.build(log);
    else if (this.zoomed) {
      const { min, max } = this.u.scales.x;
      this.u.setScale("x", { min, max }); // fits the height
      this.u.redraw();
    } else this.u.setData(this.corners());
    if (this.details.open) this.showTable();
  }

  /** Data from which uPlot learns the ranges. */
  corners() {
    const x = findRange(this.drawn.flatMap((one) => [one.x[0], one.x[one.x.length - 1]]), false, 0);
    return [[x.min, x.max === x.min ? x.min + 1 : x.max], [0, 1]];
  }

  /** Range of the values between two steps. @param {number} from @param {number} to */
  heights(from, to) {
    const values = this.drawn.flatMap((one) => one.y.filter((_, i) => one.x[i] >= from && one.x[i] <= to));
    const { min, max } = findRange(values, this.log ?? false, 0.05);
    return [min, max];
  }

  /** @param {boolean} log */
  build(log) {
    this.u?.destroy();
    this.log = log;
    const axis = { stroke: css("--soft"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line"), width: 1, size: 4 }, font: "12px system-ui, sans-serif" };
    const labels = (/** @type {any} */ _, /** @type {(number | null)[]} */ values) => values.map((value) => (value === null ? "" : format(value)));
    const clock = (/** @type {any} */ _, /** @type {number[]} */ moments) =>
      moments.map((moment) => new Date(moment * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", ...(moment % 60 && { second: "2-digit" }) }));
    const options = {
      ...this.size(),
      legend: { show: false },
      padding: [8, 16, 0, 0],
      cursor: { drag: { x: true, y: false }, points: { show: false }, y: false },
      scales: {
        x: { time: this.unit === "time" },
        y: { distr: log ? 3 : 1, range: (/** @type {any} */ u) => this.heights(u.scales.x.min ?? -Infinity, u.scales.x.max ?? Infinity) },
      },
      axes: [
        { ...axis, space: 64, size: 32, values: this.unit === "time" ? clock : labels },
        { ...axis, space: 32, size: 64, values: labels },
      ],
      series: [{}, { paths: () => null, points: { show: false } }],
      hooks: {
        draw: [(/** @type {any} */ u) => this.draw(u)],
        setCursor: [(/** @type {any} */ u) => this.point(u)],
        setScale: [(/** @type {any} */ u, /** @type {string} */ key) => key === "x" && this.noteZoom(u)],
      },
    };
    const zoom = zoomOf(this.figure.id);
    this.u = new uPlot(options, this.corners(), this.plot);
    if (zoom) this.u.setScale("x", zoom);
    this.plot.querySelector(".uplot")?.setAttribute("aria-hidden", "true");
  }

  /** @param {any} u */
  noteZoom(u) {
    const [[min, max]] = this.corners();
    this.figure.dataset.range = [u.scales.x.min, u.scales.x.max].map(format).join(" to ");
    const zoomed = u.scales.x.min > min || u.scales.x.max < max;
    if (zoomed || this.zoomed) setZoom(this.figure.id, zoomed ? u.scales.x : null);
    this.zoomed = zoomed;
    this.refineSoon();
  }

  /** Ask for all points in the visible part of curves that the server has thinned. */
  refineSoon() {
    window.clearTimeout(this.refining);
    if (!this.zoomed || this.unit === "time" || this.series.every((one) => one.x.length <= INTERVALS)) return;
    this.refining = window.setTimeout(() => {
      const { min, max } = this.u.scales.x;
      this.load({ after: String(Math.ceil(min) - 1), until: String(Math.floor(max)) }).catch(() => undefined);
    }, ZOOM_MS);
  }

  /** @param {any} u */
  draw(u) {
    const started = performance.now();
    const active = this.drawn[this.active.series];
    u.ctx.save();
    drawCurves(u, this.drawn, this.active.series, this.log ?? false);
    if (active) drawPoint(u, active, this.active.index, 4);
    u.ctx.restore();
    this.figure.dataset.drawMs = (performance.now() - started).toFixed(1);
  }

  /** Name the curve nearest to the cursor. @param {any} u */
  point(u) {
    const { left, top } = u.cursor;
    if (left === undefined || left < 0) return this.activate(-1, 0);
    const step = u.posToVal(left, "x");
    let nearest = { distance: 48, series: -1, index: 0 };
    this.drawn.forEach((one, series) => {
      const index = nearestIndex(one.x, step);
      const distance = Math.hypot(u.valToPos(one.x[index], "x") - left, u.valToPos(one.y[index], "y") - top);
      if (distance < nearest.distance) nearest = { distance, series, index };
    });
    return this.activate(nearest.series, nearest.index);
  }

  /** @param {number} series @param {number} index */
  activate(series, index) {
    if (series === this.active.series && index === this.active.index) return;
    this.active = { series, index };
    const one = this.drawn[series];
    this.tip.hidden = !one;
    if (one) {
      const at = this.unit === "time" ? new Date(one.x[index] * 1000).toLocaleTimeString() : `${format(one.x[index])} ${this.unit}`;
      const then = one.note && index === one.x.length - 1 ? `, ${one.note}` : "";
      this.tip.textContent = `${one.label}: ${format(one.y[index])} at ${at}${then}`;
    }
    this.u?.redraw(false, false);
  }

  /** Move along a curve and between curves. @param {KeyboardEvent} event */
  key(event) {
    const { series, index } = this.active;
    const one = this.drawn[Math.max(series, 0)];
    if (!one || !this.u) return;
    const last = this.drawn.length - 1;
    const step = event.shiftKey ? 10 : 1;
    /** @type {Record<string, () => void>} */
    const keys = {
      ArrowRight: () => this.activate(Math.max(series, 0), Math.min(series < 0 ? 0 : index + step, one.x.length - 1)),
      ArrowLeft: () => this.activate(Math.max(series, 0), Math.max(series < 0 ? one.x.length - 1 : index - step, 0)),
      ArrowDown: () => this.activateAt(Math.min(series + 1, last), one.x[index]),
      ArrowUp: () => this.activateAt(Math.max(series - 1, 0), one.x[index]),
      Home: () => this.activate(Math.max(series, 0), 0),
      End: () => this.activate(Math.max(series, 0), one.x.length - 1),
      Escape: () => (this.activate(-1, 0), this.u?.setData(this.corners())),
      "+": () => this.zoom(0.5),
      "-": () => this.zoom(2),
    };
    if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  }

  /** @param {number} series @param {number} step */
  activateAt(series, step) {
    this.activate(series, nearestIndex(this.drawn[series].x, step));
  }

  /** Zoom around the active point. @param {number} factor */
  zoom(factor) {
    const [[least, greatest]] = this.corners();
    const { min, max } = this.u.scales.x;
    const middle = this.drawn[this.active.series]?.x[this.active.index] ?? (min + max) / 2;
    const half = ((max - min) / 2) * factor;
    this.u.setScale("x", { min: Math.max(middle - half, least), max: Math.min(middle + half, greatest) });
  }

  showTable() {
    this.details.querySelector("div")?.remove();
    this.details.append(tableOfValues(this.series, this.title));
  }

  save() {
    const look = { title: this.title, xLabel: this.unit, log: switches().log, color, foreground: css("--fg"), background: css("--bg") };
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([toSvg(this.drawn, look)], { type: "image/svg+xml" }));
    link.download = `${this.title.replace(/[^\w.-]+/g, "-") || "chart"}.svg`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  /** @param {string} text @param {string} look */
  say(text, look = "message") {
    const message = this.plot.querySelector(":scope > p") ?? document.createElement("p");
    message.className = look;
    message.textContent = text;
    this.plot.append(message);
  }

  /** Fetch what has changed, one request at a time. @param {Set<number>} trials */
  async update(trials) {
    trials.forEach((id) => this.stale.add(id));
    if (this.fetching) return;
    this.fetching = true;
    try {
      while (this.stale.size) {
        const changed = this.stale;
        this.stale = new Set();
        await this.load(this.unit === "time" ? this.newerSamples() : this.newerReports(changed));
      }
    } finally {
      this.fetching = false;
    }
  }

  /** Ask for the points after the last ones, or for fewer points of all the time once there are many. */
  newerSamples() {
    const isLong = this.series.some((one) => one.x.length > MOST_POINTS);
    return isLong || !this.last ? {} : { after: String(this.last) };
  }

  /** The same for trials that have reported. A new run may have gone back, so its whole curve is asked for. @param {Set<number>} trials */
  newerReports(trials) {
    const known = this.series.filter((one) => trials.has(Number(one.id)));
    const last = Math.min(...known.map((one) => one.x[one.x.length - 1] ?? -1));
    const isWhole = known.length < trials.size || last < 0 || known.some((one) => one.x.length > MOST_POINTS || this.restarted.has(Number(one.id)));
    trials.forEach((id) => this.restarted.delete(id));
    const which = { trials: [...trials].join(",") };
    return isWhole ? which : { ...which, after: String(last) };
  }

  /** Ids of the chart's trials, the best first. @returns {number[]} */
  trials() {
    const ids = new URL(this.source, location.href).searchParams.get("trials");
    return ids ? ids.split(",").map(Number) : [];
  }

  start() {
    this.source = this.figure.dataset.src ?? "";
    this.load().catch((error) => this.say(`The values could not be read: ${error.message}`));
  }

  /** Fetch the curves again if a refresh of the page has changed which ones the chart shows. */
  followSource() {
    if (this.source === this.figure.dataset.src) return;
    this.source = this.figure.dataset.src ?? "";
    this.load().catch(() => undefined);
  }
}

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
    if (changed.length) chart.update(new Set(changed)).catch(() => undefined);
  }
  checkNamesSoon();
});
document.addEventListener("det:rows", (event) => {
  for (const [key, values] of Object.entries(/** @type {CustomEvent<Record<string, Record<string, string>>>} */ (event).detail)) {
    if (key.startsWith("trial/") && "run" in values) charts.forEach((chart) => chart.restarted.add(Number(key.slice(6))));
  }
});
document.addEventListener("det:reload", () => charts.forEach((chart) => void chart.load().catch(() => undefined)));
document.addEventListener("det:system_metrics", (event) => {
  if (document.querySelector("#utilization .empty")) refreshSoon("utilization");
  for (const chart of charts.filter((each) => each.unit === "time")) {
    chart.update(/** @type {CustomEvent<Set<number>>} */ (event).detail).catch(() => undefined);
  }
});

let checking = 0;
/** Refresh the charts, at most every few seconds, if trials have begun to report metrics that the page does not know. */
function checkNamesSoon() {
  const region = /** @type {HTMLElement | null} */ (document.querySelector("[data-names-src]"));
  if (!region) return;
  checking ||= window.setTimeout(async () => {
    checking = 0;
    const answer = await fetch(region.dataset.namesSrc ?? "").catch(() => null);
    if (answer?.ok && JSON.stringify((await answer.json()).names) !== JSON.stringify(JSON.parse(region.dataset.names ?? "[]"))) refreshSoon("charts", "series");
  }, NAMES_MS);
}

if (controls) {
  const { log, weight } = switches();
  const logBox = /** @type {HTMLInputElement} */ (controls.elements.namedItem("log"));
  const slider = /** @type {HTMLInputElement} */ (controls.elements.namedItem("smooth"));
  logBox.checked = log;
  slider.value = String(weight);
  controls.hidden = false;
  controls.addEventListener("input", () => {
    setSwitches(logBox.checked, Number(slider.value));
    charts.forEach((chart) => chart.series.length && chart.show());
  });
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
  charts.forEach((chart) => chart.u && chart.build(chart.log ?? false)),
);
