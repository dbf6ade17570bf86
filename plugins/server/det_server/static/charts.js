// @ts-check
/** Charts of curves. uPlot has the axes, the zoom and the cursor; the curves are drawn here, each with its own steps. */
import { DASHES, RANKED, findRange, format, nearestIndex, smooth, toSvg } from "./curves.js";
import { tableOfValues } from "./values_table.js";

/** @typedef {import("./curves.js").Series} Series */
/** @type {any} */
const uPlot = /** @type {any} */ (window).uPlot;

const controls = /** @type {HTMLFormElement | null} */ (document.querySelector(".chart-controls"));

/** Read the switches of the page, which its URL keeps. */
function switches() {
  const query = new URLSearchParams(location.search);
  const weight = Number(query.get("smooth"));
  return { log: query.get("log") === "1", weight: weight > 0 && weight < 1 ? weight : 0 };
}

/** @param {string} name */
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
/** @param {number | undefined} rank */
const color = (rank) => css(rank === undefined ? "--rest" : `--c${rank}`);

class Chart {
  /** @param {HTMLElement} figure */
  constructor(figure) {
    this.figure = figure;
    this.plot = /** @type {HTMLElement} */ (figure.querySelector(".plot"));
    this.title = figure.querySelector("figcaption")?.textContent?.trim() ?? "";
    this.unit = figure.dataset.x ?? "";
    /** @type {Series[]} */
    this.series = [];
    /** @type {Series[]} */
    this.drawn = [];
    this.u = null;
    this.active = { series: -1, index: 0 };
    this.zoomed = false;
    this.fetching = false;
    /** @type {Set<number>} */
    this.stale = new Set();
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

  /** Fetch all curves, or those of some trials. @param {Set<number>} [only] */
  async load(only) {
    const url = new URL(this.figure.dataset.src ?? "", location.href);
    if (only) url.searchParams.set("trials", [...only].join(","));
    const answer = await fetch(url);
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.error ?? answer.statusText);
    const order = this.trials();
    const known = new Map(this.series.map((one) => [one.id, one]));
    for (const one of found.series) known.set(one.id, one);
    const ranks = new Map(order.map((id, rank) => [id, rank]));
    this.series = [...known.values()].sort((a, b) => (ranks.get(a.id) ?? a.id) - (ranks.get(b.id) ?? b.id));
    this.series.forEach((one, position) => {
      const rank = ranks.get(one.id) ?? position;
      one.rank = rank < RANKED ? rank : undefined;
    });
    this.show();
  }

  show() {
    const { log, weight } = switches();
    this.drawn = this.series.filter((one) => one.x.length).map((one) => ({ ...one, y: smooth(one.y, weight) }));
    this.figure.dataset.state = this.drawn.length ? "drawn" : "empty";
    if (!this.drawn.length) return this.say("No finite values yet.", "note");
    this.plot.querySelector(":scope > p")?.remove();
    if (!this.u || this.log !== log) this.build(log);
    else if (this.zoomed) this.u.redraw();
    else this.u.setData(this.corners());
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
    this.u = new uPlot(options, this.corners(), this.plot);
    this.plot.querySelector(".uplot")?.setAttribute("aria-hidden", "true");
  }

  /** @param {any} u */
  noteZoom(u) {
    const [[min, max]] = this.corners();
    this.zoomed = u.scales.x.min > min || u.scales.x.max < max;
  }

  /** Draw the curves, the best one last. @param {any} u */
  draw(u) {
    const started = performance.now();
    const { ctx, bbox } = u;
    const x = u.scales.x;
    const y = u.scales.y;
    const scaled = this.log ? Math.log10 : (/** @type {number} */ value) => value;
    const bottom = scaled(y.min);
    const across = bbox.width / (x.max - x.min);
    const up = bbox.height / (scaled(y.max) - bottom);
    const ratio = devicePixelRatio || 1;
    const palette = [...Array(RANKED).keys()].map((rank) => color(rank));
    const rest = color(undefined);
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left - 4 * ratio, bbox.top - 4 * ratio, bbox.width + 8 * ratio, bbox.height + 8 * ratio);
    ctx.clip();
    ctx.lineJoin = "bevel"; // with the widths below, an eighth of the time of round joins and 1.25 pixels
    for (let k = this.drawn.length - 1; k >= 0; k--) {
      const one = this.drawn[k];
      const rank = one.rank;
      ctx.strokeStyle = rank === undefined ? rest : palette[rank];
      ctx.lineWidth = (k === this.active.series || (rank === 0 && this.drawn.length > 1) ? 2.5 : rank === undefined ? 1 : 1.25) * ratio;
      ctx.setLineDash(DASHES[rank ?? 0].map((length) => length * ratio));
      ctx.beginPath();
      for (let i = 0; i < one.x.length; i++) {
        const value = one.y[i];
        if (this.log && value <= 0) continue;
        ctx.lineTo(bbox.left + (one.x[i] - x.min) * across, bbox.top + bbox.height - (scaled(value) - bottom) * up);
      }
      ctx.stroke();
      if (one.x.length === 1) {
        ctx.fillStyle = ctx.strokeStyle;
        ctx.beginPath();
        ctx.arc(bbox.left + (one.x[0] - x.min) * across, bbox.top + bbox.height - (scaled(one.y[0]) - bottom) * up, 3 * ratio, 0, 2 * Math.PI);
        ctx.fill();
      }
    }
    this.mark(u, ratio);
    ctx.restore();
    this.figure.dataset.drawMs = (performance.now() - started).toFixed(1);
  }

  /** Mark the active point. @param {any} u @param {number} ratio */
  mark(u, ratio) {
    const one = this.drawn[this.active.series];
    if (!one) return;
    const { ctx } = u;
    ctx.setLineDash([]);
    ctx.fillStyle = color(one.rank);
    ctx.beginPath();
    ctx.arc(u.valToPos(one.x[this.active.index], "x", true), u.valToPos(one.y[this.active.index], "y", true), 4 * ratio, 0, 2 * Math.PI);
    ctx.fill();
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
      this.tip.textContent = `${one.label}: ${format(one.y[index])} at ${at}`;
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

  /** Fetch the curves of trials that have reported, one request at a time. @param {Set<number>} trials */
  async update(trials) {
    trials.forEach((id) => this.stale.add(id));
    if (this.fetching) return;
    this.fetching = true;
    try {
      while (this.stale.size) {
        const some = this.stale;
        this.stale = new Set();
        await this.load(some);
      }
    } finally {
      this.fetching = false;
    }
  }

  /** Ids of the chart's trials, the best first. */
  trials() {
    return (new URL(this.figure.dataset.src ?? "", location.href).searchParams.get("trials") ?? "").split(",").map(Number);
  }

  start() {
    let source = this.figure.dataset.src;
    this.load().catch((error) => this.say(`The values could not be read: ${error.message}`));
    document.addEventListener("det:refreshed", () => {
      if (source === this.figure.dataset.src) return;
      source = this.figure.dataset.src;
      this.series = [];
      this.load().catch(() => undefined);
    });
    document.addEventListener("det:metrics", (event) => {
      const changed = [.../** @type {CustomEvent<Set<number>>} */ (event).detail].filter((id) => this.trials().includes(id));
      if (changed.length) this.update(new Set(changed)).catch(() => undefined);
    });
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
document.querySelectorAll(".chart[data-src]").forEach((figure) => seen.observe(figure));

if (controls) {
  const { log, weight } = switches();
  const logBox = /** @type {HTMLInputElement} */ (controls.elements.namedItem("log"));
  const slider = /** @type {HTMLInputElement} */ (controls.elements.namedItem("smooth"));
  logBox.checked = log;
  slider.value = String(weight);
  controls.hidden = false;
  controls.addEventListener("input", () => {
    const url = new URL(location.href);
    logBox.checked ? url.searchParams.set("log", "1") : url.searchParams.delete("log");
    Number(slider.value) ? url.searchParams.set("smooth", slider.value) : url.searchParams.delete("smooth");
    history.replaceState(null, "", url);
    charts.forEach((chart) => chart.series.length && chart.show());
  });
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
  charts.forEach((chart) => chart.u && chart.build(chart.log ?? false)),
);
