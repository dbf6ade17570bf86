// @ts-check
/** A chart of curves. uPlot has the axes, the zoom and the cursor; the curves are drawn here, each with its own steps. */
import { color, css, drawCurves, drawPoint } from "./curve_painter.js";
import { DURATION_STEPS, RANKED, findRange, format, formatDuration, formatMoment, interpolate, nearestIndex, placeCurve, replacePart, toSvg, valueAt } from "./curves.js";
import { entryOf, showLegend, swatch } from "./legend.js";
import { notify, withRetries } from "./live.js";
import { tableOfValues } from "./values_table.js";
import { hiddenOf, partOf, setHidden, setPart, switches } from "./view_state.js";

/** @typedef {import("./curves.js").Series} Series */
/** @typedef {import("./curves.js").DrawnSeries} DrawnSeries */
/** @type {any} */
const uPlot = /** @type {any} */ (window).uPlot;

/** Number of points after which a curve is fetched again with fewer. The server sends 1,500 at most. */
const MOST_POINTS = 2500;
/** Number of intervals from which the server sends extremes. A curve with more points may lack some of its reports. */
const INTERVALS = 300;
/** Milliseconds after a change of the zoom until the chart asks for the points that it shows now. */
const ZOOM_MS = 200;
/** Milliseconds for which a message about a link is shown. */
const NOTICE_MS = 3000;
/** Maximum number of curves whose values are shown at the cursor. */
const MOST_READ = 12;
/** Distance in pixels up to which a curve is near the cursor. */
const NEAR_PX = 48;
/**
 * Horizontal axes: what the label says, what a curve without positions lacks, the formatter of a position, and the distances of ticks.
 * @type {Record<string, {label: string, lack?: string, format: (x: number, span: number) => string, steps?: number[]}>}
 */
const AXES = {
  batch: { label: "batches", format: (x) => format(x), steps: Array.from({ length: 36 }, (_, i) => [1, 2, 5][i % 3] * 10 ** Math.floor(i / 3)) },
  epoch: { label: "epochs", lack: "reported epochs, and no length in epochs", format: (x) => format(x) },
  time: {
    label: "running time",
    lack: "reports with times",
    format: formatDuration,
    steps: DURATION_STEPS,
  },
  clock: { label: "time of day", lack: "reports with times", format: formatMoment },
};

export class Chart {
  /** @param {HTMLElement} figure */
  constructor(figure) {
    this.figure = figure;
    this.plot = /** @type {HTMLElement} */ (figure.querySelector(".plot"));
    this.title = figure.querySelector("figcaption")?.textContent?.trim() ?? "";
    this.isOverTime = figure.dataset.x === "time";
    this.source = "";
    this.reload = withRetries(() => this.load());
    this.followStale = withRetries(() => this.fetchStale());
    this.last = 0;
    /** @type {Series[]} */
    this.series = [];
    /** @type {DrawnSeries[]} */
    this.drawn = [];
    this.u = null;
    this.active = { series: -1, index: 0 };
    /** @type {string | null} */
    this.emphasized = null;
    this.zoomed = false;
    this.refining = 0;
    this.fetching = false;
    /** @type {Set<number>} */
    this.stale = new Set();
    /** @type {Set<number>} */
    this.restarted = new Set();
    [this.tip, this.now, this.values] = ["div", "div", "table"].map((name) => document.createElement(name));
    this.tip.className = "tip";
    this.now.setAttribute("role", "status");
    this.values.setAttribute("aria-hidden", "true"); // the table of values says the same
    this.tip.append(this.now, this.values);
    this.tip.hidden = true;
    this.plot.after(this.tip);
    this.addTools();
    this.plot.addEventListener("keydown", (event) => this.key(event));
    this.details = /** @type {HTMLDetailsElement} */ (figure.querySelector(".values"));
    this.details.addEventListener("toggle", () => this.details.open && this.showTable());
    new ResizeObserver(() => this.u?.setSize(this.size())).observe(this.plot);
  }

  /** Name of the horizontal axis. */
  get axis() {
    return this.isOverTime ? "clock" : switches().axis;
  }

  /** Whether curves have positions on the axis besides their steps. */
  get hasPositions() {
    return !this.isOverTime && this.axis !== "batch";
  }

  size() {
    return { width: Math.max(this.plot.clientWidth, 120), height: this.plot.clientHeight };
  }

  addTools() {
    const tools = document.createElement("span");
    tools.className = "tools";
    const buttons = /** @type {[string, string, () => void][]} */ ([
      ["Link", `Copy a link to this view of ${this.title}`, () => this.link()],
      ["SVG", `Save ${this.title} as SVG`, () => this.save()],
    ]).map(([text, label, act]) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = text;
      button.setAttribute("aria-label", label);
      button.addEventListener("click", act);
      return button;
    });
    tools.append(this.rangeInputs(), ...buttons);
    this.figure.querySelector("figcaption")?.append(tools);
  }

  /** Make the inputs of the vertical range, which are shown on demand. */
  rangeInputs() {
    const [details, summary] = [document.createElement("details"), document.createElement("summary")];
    summary.textContent = "Range";
    summary.setAttribute("aria-label", `Vertical range of ${this.title}`);
    const part = partOf("y", this.figure.id);
    const inputs = /** @type {["least" | "greatest", "min" | "max"][]} */ ([["least", "min"], ["greatest", "max"]]).map(([word, end]) => {
      const input = document.createElement("input");
      input.inputMode = "decimal";
      input.placeholder = word;
      input.setAttribute("aria-label", `${word} shown value of ${this.title}`);
      input.value = part && Number.isFinite(part[end]) ? String(part[end]) : "";
      return input;
    });
    const read = (/** @type {HTMLInputElement} */ input, /** @type {number} */ none) => (input.value.trim() === "" ? none : Number(input.value.replace(",", ".")));
    for (const input of inputs) {
      input.addEventListener("change", () => {
        const [min, max] = [read(inputs[0], -Infinity), read(inputs[1], Infinity)];
        const isWrong = !(min < max);
        inputs.forEach((one) => one.setAttribute("aria-invalid", String(isWrong)));
        if (isWrong) return;
        setPart("y", this.figure.id, min > -Infinity || max < Infinity ? { min, max } : null);
        if (this.u) this.show();
      });
    }
    details.className = "range";
    details.open = Boolean(part);
    details.append(summary, inputs[0], " to ", inputs[1]);
    return details;
  }

  /**
   * Fetch the curves.
   * @param {Record<string, string>} [some] parameters for a part of them: the `trials` that changed, and the steps, or ids of samples, `after` and `until` which points are asked for
   */
  async load(some = {}) {
    const { source, axis } = this;
    const url = new URL(source, location.href);
    for (const [name, value] of Object.entries({ ...some, ...(this.hasPositions && { axis }) })) url.searchParams.set(name, value);
    const answer = await fetch(url);
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.error ?? answer.statusText);
    if (source !== this.source || axis !== this.axis) return;
    const isPart = "after" in some;
    if (isPart && this.isOverTime && Number(some.after) !== this.last) return; // another request was faster
    const [after, until] = this.isOverTime ? [Infinity, Infinity] : [Number(some.after), Number(some.until ?? Infinity)];
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
    if (found.more) await this.load({ after: String(found.last) });
  }

  show() {
    const { axis, hasPositions } = this;
    const { log, weight } = switches();
    const hidden = hiddenOf(this.figure.id);
    const curves = this.series.filter((one) => one.x.length);
    const shown = curves.filter((one) => !hidden.has(entryOf(one)));
    this.drawn = shown.map((one) => placeCurve(one, hasPositions, weight)).filter((one) => one.x.length);
    this.figure.dataset.state = this.drawn.length ? "drawn" : "empty";
    this.showLegend(hidden);
    const lacking = shown.length - this.drawn.length;
    const lack = lacking ? `${lacking} of ${shown.length} curves: no ${AXES[axis].lack}.` : "";
    if (!this.drawn.length) return this.say(lack || (curves.length ? "All curves are hidden." : "No finite values yet."), "note");
    this.plot.querySelector(":scope > p")?.remove();
    if (lack) this.say(lack, "note");
    if (!this.u || this.log !== log || this.builtFor !== axis) this.build(log);
    else if (this.zoomed) {
      const { min, max } = this.u.scales.x;
      this.u.setScale("x", { min, max }); // fits the height
      this.u.redraw();
    } else this.u.setData(this.corners());
    if (this.details.open) this.showTable();
  }

  /** @param {Set<string>} hidden */
  showLegend(hidden) {
    showLegend(this.figure, this.series, hidden, {
      hide: (ids) => {
        setHidden(this.figure.id, ids);
        this.read(-1, 0, null);
        this.show();
      },
      emphasize: (id) => {
        this.emphasized = id;
        this.u?.redraw(false, false);
      },
    });
  }

  /** Data from which uPlot learns the ranges. */
  corners() {
    const x = findRange(this.drawn.flatMap((one) => [one.x[0], one.x[one.x.length - 1], ...one.gapsAt.map((gap) => gap.to)]), false, 0);
    return [[x.min, x.max === x.min ? x.min + 1 : x.max], [0, 1]];
  }

  /** Range of the values in a part of the horizontal axis, unless the reader has chosen one. @param {number} from @param {number} to */
  heights(from, to) {
    const values = this.drawn.flatMap((one) => one.y.filter((_, i) => one.x[i] >= from && one.x[i] <= to));
    const { min, max } = findRange(values, this.log ?? false, 0.05);
    const part = partOf("y", this.figure.id);
    const least = part && Number.isFinite(part.min) && (part.min > 0 || !this.log) ? part.min : min;
    const greatest = part && Number.isFinite(part.max) && part.max > least ? part.max : max;
    return greatest > least ? [least, greatest] : [least, this.log ? least * 10 : least + 1];
  }

  /** @param {boolean} log */
  build(log) {
    this.u?.destroy();
    this.log = log;
    this.builtFor = this.axis;
    this.tip.hidden = true;
    const { label, format: formatX, steps } = AXES[this.axis];
    const look = { stroke: css("--soft"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line"), width: 1, size: 4 }, font: "12px system-ui, sans-serif" };
    const labels = (/** @type {any} */ _, /** @type {(number | null)[]} */ values) => values.map((value) => (value === null ? "" : format(value)));
    const across = (/** @type {any} */ u, /** @type {(number | null)[]} */ places) => places.map((x) => (x === null ? "" : formatX(x, u.scales.x.max - u.scales.x.min)));
    const options = {
      ...this.size(),
      legend: { show: false },
      padding: [8, 28, 0, 0],
      cursor: { drag: { x: true, y: false }, points: { show: false }, y: false },
      scales: {
        x: { time: this.axis === "clock" },
        y: { distr: log ? 3 : 1, range: (/** @type {any} */ u) => this.heights(u.scales.x.min ?? -Infinity, u.scales.x.max ?? Infinity) },
      },
      axes: [
        { ...look, space: this.axis === "clock" ? 88 : 64, size: 28, values: across, label, labelSize: 18, labelGap: 0, labelFont: look.font, ...(steps && { incrs: steps }) },
        { ...look, space: 32, size: 64, values: labels },
      ],
      series: [{}, { paths: () => null, points: { show: false } }],
      hooks: {
        draw: [(/** @type {any} */ u) => this.draw(u)],
        setCursor: [(/** @type {any} */ u) => this.point(u)],
        setScale: [(/** @type {any} */ u, /** @type {string} */ key) => key === "x" && this.noteZoom(u)],
      },
    };
    const zoom = partOf("zoom", this.figure.id);
    this.u = new uPlot(options, this.corners(), this.plot);
    if (zoom && Number.isFinite(zoom.max - zoom.min)) this.u.setScale("x", zoom);
    this.plot.querySelector(".uplot")?.setAttribute("aria-hidden", "true");
  }

  /** @param {any} u */
  noteZoom(u) {
    const [[min, max]] = this.corners();
    this.figure.dataset.range = [u.scales.x.min, u.scales.x.max].map(format).join(" to ");
    const zoomed = u.scales.x.min > min || u.scales.x.max < max;
    if (zoomed || this.zoomed) setPart("zoom", this.figure.id, zoomed ? u.scales.x : null);
    this.zoomed = zoomed;
    this.refineSoon();
  }

  /** Ask for all points in the visible part of curves that the server has thinned. */
  refineSoon() {
    window.clearTimeout(this.refining);
    if (!this.zoomed || this.isOverTime || this.series.every((one) => one.x.length <= INTERVALS)) return;
    this.refining = window.setTimeout(() => {
      const { min, max } = this.u.scales.x;
      const steps = this.drawn.map(({ positions }) => (this.hasPositions ? interpolate([min, max], (positions ?? []).map(([step, at]) => [at, step])) : [min, max]));
      const [after, until] = [Math.min(...steps.map(([first]) => first)), Math.max(...steps.map(([, last]) => last))];
      this.load({ after: String(Math.max(Math.ceil(after) - 1, -1)), until: String(Math.max(Math.floor(until), 0)) }).catch(() => undefined);
    }, ZOOM_MS);
  }

  /** @param {any} u */
  draw(u) {
    const started = performance.now();
    const active = this.drawn[this.active.series];
    const isActive = (/** @type {DrawnSeries} */ one) => (this.emphasized !== null ? entryOf(one) === this.emphasized : active ? one === active : null);
    u.ctx.save();
    drawCurves(u, this.drawn, isActive, this.log ?? false);
    if (active) drawPoint(u, active, this.active.index, 4);
    u.ctx.restore();
    this.figure.dataset.drawMs = (performance.now() - started).toFixed(1);
  }

  /** Read the values at the cursor, and find the curve that is nearest to it. @param {any} u */
  point(u) {
    const { left, top } = u.cursor;
    if (left === undefined || left < 0) return this.read(-1, 0, null);
    const at = u.posToVal(left, "x");
    let nearest = { distance: NEAR_PX, series: -1, index: 0 };
    this.drawn.forEach((one, series) => {
      const index = nearestIndex(one.x, at);
      const distance = Math.hypot(u.valToPos(one.x[index], "x") - left, u.valToPos(one.y[index], "y") - top);
      if (distance < nearest.distance) nearest = { distance, series, index };
    });
    return this.read(nearest.series, nearest.index, at);
  }

  /** Make a point of a curve the active one, and put the cursor there. @param {number} series @param {number} index */
  activate(series, index) {
    const one = this.drawn[series];
    this.read(series, index, one ? one.x[index] : null);
    const [left, top] = one ? [this.u.valToPos(one.x[index], "x"), this.u.valToPos(one.y[index], "y")] : [-10, -10];
    this.u?.setCursor({ left, top }, false);
  }

  /** Show the values of all curves at a position, first that of the active one, or nothing. @param {number} series @param {number} index @param {number | null} at */
  read(series, index, at) {
    const isOther = series !== this.active.series || index !== this.active.index;
    this.active = { series, index };
    this.tip.hidden = at === null;
    if (at !== null && this.u) {
      const { min, max } = this.u.scales.x;
      const unit = this.builtFor === "batch" || this.builtFor === "epoch" ? `${this.builtFor} ` : "";
      const where = (/** @type {number} */ x) => `${unit}${AXES[this.builtFor].format(x, max - min)}`;
      const one = this.drawn[series];
      const then = one?.note && index === one.x.length - 1 ? `, ${one.note}` : "";
      this.now.textContent = one ? `${one.label}: ${format(one.y[index])} at ${where(one.x[index])}${then}` : where(at);
      const rows = this.drawn.map((each) => ({ each, text: valueAt(each, at, (max - min) / 100) })).filter(({ text }) => text);
      this.values.replaceChildren(...(rows.length > 1 || !one ? rows.slice(0, MOST_READ).map(({ each, text }) => valueRow(each, text, each === one)) : []));
      if (rows.length > MOST_READ) this.values.append(valueRow(null, `and ${rows.length - MOST_READ} more`, false));
      this.tip.classList.toggle("left", at > (min + max) / 2);
    }
    if (isOther) this.u?.redraw(false, false);
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

  /** @param {number} series @param {number} at */
  activateAt(series, at) {
    this.activate(series, nearestIndex(this.drawn[series].x, at));
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

  /** Copy the URL, which has the state of all charts of the page. */
  async link() {
    const url = new URL(location.href);
    url.hash = this.figure.id;
    const isCopied = await navigator.clipboard?.writeText(url.href).then(() => true, () => false);
    notify(isCopied ? "The link to this view is copied." : "This browser copies no links. The address of this page is the link to this view.");
    setTimeout(() => notify(""), NOTICE_MS);
  }

  save() {
    const { label, format: formatX } = AXES[this.axis];
    const [[min, max]] = this.corners();
    const look = { title: this.title, xLabel: label, formatX: (/** @type {number} */ x) => formatX(x, max - min), log: switches().log, color, foreground: css("--fg"), background: css("--bg") };
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

  /** Fetch what has changed. @param {number[]} trials */
  update(trials) {
    trials.forEach((id) => this.stale.add(id));
    this.followStale();
  }

  /** Fetch what has changed, one request at a time. */
  async fetchStale() {
    if (this.fetching) return;
    this.fetching = true;
    try {
      while (this.stale.size) {
        const changed = this.stale;
        this.stale = new Set();
        try {
          await this.load(this.isOverTime ? this.newerSamples() : this.newerReports(changed));
        } catch (error) {
          for (const id of changed) this.stale.add(id), this.restarted.add(id); // the next request is for whole curves
          throw error;
        }
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

  /** Fetch the curves for another axis. */
  changeAxis() {
    this.series.forEach((one) => delete one.positions);
    this.reload();
  }

  start() {
    this.source = this.figure.dataset.src ?? "";
    this.load().catch((error) => this.say(`The values could not be read: ${error.message}`));
  }

  /** Fetch the curves again if a refresh of the page has changed which ones the chart shows. */
  followSource() {
    if (this.source === this.figure.dataset.src) return;
    this.source = this.figure.dataset.src ?? "";
    this.reload();
  }
}

/** Make a row with the value of a curve, or with a text. @param {DrawnSeries | null} curve @param {string} text @param {boolean} isActive */
function valueRow(curve, text, isActive) {
  const row = document.createElement("tr");
  const cells = [document.createElement("td"), document.createElement("td")];
  if (curve) cells[0].append(swatch(curve.rank), curve.label);
  cells[1].textContent = text;
  row.className = isActive ? "now" : "";
  row.append(...cells);
  return row;
}
