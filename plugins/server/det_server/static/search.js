// @ts-check
/** Pictures of a search: parallel coordinates and a scatter plot, in which choosing ranges filters the table. */
import { formatRanges, isWithin, makeAxis, parseRanges } from "./axes.js";
import { format, RANKED } from "./curves.js";
import { swatch } from "./legend.js";
import { changeUrl } from "./view_state.js";

/** @typedef {{id: number, state: string, word: string, batches: number, best: number | null, text: string, values: unknown[], rank?: number}} Trial */
/** @typedef {import("./axes.js").Axis} Axis */

const SVG = "http://www.w3.org/2000/svg";
const TABLE_ROWS = 200;
/** Milliseconds after a change until the trials are drawn again. */
const REDRAW_MS = 2000;

/** @param {string} name @param {Record<string, string | number>} attributes @param {string} [text] */
function svg(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  if (text !== undefined) element.textContent = text;
  return element;
}

/** @param {string} text @param {number} most */
const shortened = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** @typedef {{metric: string, names: string[], scales: string[], trials: Trial[]}} Data */

class Search {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    /** @type {Trial[]} */
    this.trials = [];
    /** @type {string[]} */
    this.names = [];
    /** @type {Axis[]} */
    this.axes = [];
    this.metric = "";
    this.dragging = false;
    this.ranges = parseRanges(new URLSearchParams(location.search).get("ranges"));
    this.parallel = /** @type {SVGElement} */ (root.querySelector(".parallel"));
    this.scatter = /** @type {SVGElement} */ (root.querySelector(".scatter"));
    this.select = /** @type {HTMLSelectElement} */ (root.querySelector("select[name=x]"));
    this.form = /** @type {HTMLFormElement} */ (root.querySelector(".ranges"));
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.select.addEventListener("change", () => this.changeSelect());
    for (const button of /** @type {NodeListOf<HTMLButtonElement>} */ (root.querySelectorAll("[data-save]"))) {
      button.hidden = false;
      button.addEventListener("click", () => this.save(button.dataset.save ?? ""));
    }
  }

  /** Draw the trials, or draw them again. What the reader has chosen stays. @param {Data} data */
  show(data) {
    const isOther = JSON.stringify([data.metric, data.names]) !== JSON.stringify([this.metric, this.names]);
    this.trials = data.trials;
    this.trials.forEach((trial, rank) => (trial.rank = rank < RANKED && trial.best !== null ? rank : undefined));
    this.metric = data.metric;
    this.names = data.names;
    const columns = data.names.map((name, i) => makeAxis(name, data.trials.map((trial) => trial.values[i]), data.scales[i] === "log"));
    this.axes = [...columns, makeAxis(data.metric, data.trials.map((trial) => trial.best), false)];
    if (isOther) {
      this.addInputs();
      this.addSelect();
      this.addTableHead();
    }
    this.drawParallel();
    this.drawScatter();
    this.choose();
  }

  /** @param {Trial} trial @param {number} i */
  value(trial, i) {
    return i < this.names.length ? trial.values[i] : trial.best;
  }

  /** Whether a trial is within all chosen ranges. @param {Trial} trial */
  chosen(trial) {
    return this.axes.every((axis, i) => {
      const range = this.ranges.get(axis.name);
      return !range || isWithin(axis, this.value(trial, i), range);
    });
  }

  drawParallel() {
    const [height, top, bottom] = [320, 40, 16];
    const width = Math.max(this.axes.length * 120, this.parallel.parentElement?.clientWidth ?? 800, 320);
    const x = (/** @type {number} */ i) => 56 + (i * (width - 112)) / Math.max(this.axes.length - 1, 1);
    this.y = (/** @type {number} */ place) => height - bottom - place * (height - top - bottom);
    this.place = (/** @type {number} */ y) => (height - bottom - y) / (height - top - bottom);
    this.parallel.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.parallel.setAttribute("width", String(width));
    this.parallel.setAttribute("height", String(height));
    this.parallel.replaceChildren();
    this.lines = this.trials.map((trial) => {
      const points = this.axes.flatMap((axis, i) => {
        const place = axis.place(this.value(trial, i));
        return place === null ? [] : [`${x(i).toFixed(1)},${this.y?.(place).toFixed(1)}`];
      });
      const line = svg("polyline", { points: points.join(" "), class: trial.rank === undefined ? "line" : `line ranked c${trial.rank}` });
      line.append(svg("title", {}, `trial ${trial.id}: ${this.metric} ${format(trial.best)}`));
      return line;
    });
    this.parallel.append(...[...this.lines].reverse());
    this.brushes = this.axes.map((axis, i) => this.drawAxis(axis, x(i), height, top, bottom, i === this.axes.length - 1));
  }

  /** @param {Axis} axis @param {number} x @param {number} height @param {number} top @param {number} bottom @param {boolean} last */
  drawAxis(axis, x, height, top, bottom, last) {
    const group = svg("g", {});
    group.append(svg("line", { class: "axis", x1: x, x2: x, y1: top, y2: height - bottom }));
    group.append(svg("text", { x, y: top - 20, "text-anchor": "middle", "font-weight": last ? 700 : 400 }, shortened(axis.name, 18)));
    for (const tick of axis.ticks) {
      group.append(svg("text", { class: "tick", x: x + 6, y: (this.y?.(tick.place) ?? 0) + 4 }, shortened(tick.label, 12)));
    }
    const brush = svg("rect", { class: "brush", x: x - 8, width: 16, y: 0, height: 0, visibility: "hidden" });
    const grab = /** @type {SVGElement} */ (svg("rect", { class: "grab", x: x - 16, width: 32, y: top - 8, height: height - top - bottom + 16 }));
    group.append(brush, grab);
    this.parallel.append(group);
    this.follow(grab, axis);
    return brush;
  }

  /** Let the reader drag a range along an axis. @param {SVGElement} grab @param {Axis} axis */
  follow(grab, axis) {
    const at = (/** @type {PointerEvent} */ event) => {
      const box = this.parallel.getBoundingClientRect();
      const scale = this.parallel.getAttribute("viewBox")?.split(" ").map(Number)[3] ?? box.height;
      return Math.min(Math.max(this.place?.(((event.clientY - box.top) / box.height) * scale) ?? 0, 0), 1);
    };
    let from = 0;
    grab.addEventListener("pointerdown", (event) => {
      grab.setPointerCapture(event.pointerId);
      this.dragging = true;
      from = at(event);
    });
    grab.addEventListener("pointermove", (event) => grab.hasPointerCapture(event.pointerId) && this.brush(axis, from, at(event)));
    grab.addEventListener("lostpointercapture", () => (this.dragging = false));
    grab.addEventListener("pointerup", (event) => Math.abs(from - at(event)) < 0.01 && this.setRange(axis.name, null));
  }

  /** @param {Axis} axis @param {number} from @param {number} to */
  brush(axis, from, to) {
    if (Math.abs(from - to) < 0.01) return;
    this.setRange(axis.name, [axis.value(Math.min(from, to)), axis.value(Math.max(from, to))]);
  }

  /** @param {string} name @param {[number, number] | null} range */
  setRange(name, range) {
    if (range) this.ranges.set(name, range);
    else this.ranges.delete(name);
    changeUrl((query) => (this.ranges.size ? query.set("ranges", formatRanges(this.ranges)) : query.delete("ranges")));
    this.choose();
  }

  /** Show which trials are chosen, in both pictures, the inputs and the table. */
  choose() {
    const chosen = this.trials.filter((trial) => this.chosen(trial));
    const ids = new Set(chosen.map((trial) => trial.id));
    this.trials.forEach((trial, i) => {
      this.lines?.[i].classList.toggle("out", !ids.has(trial.id));
      this.dots?.[i]?.classList.toggle("out", !ids.has(trial.id));
    });
    this.axes.forEach((axis, i) => this.showBrush(axis, i));
    this.showTable(chosen);
  }

  /** @param {Axis} axis @param {number} i */
  showBrush(axis, i) {
    const range = this.ranges.get(axis.name);
    const brush = this.brushes?.[i];
    if (!brush) return;
    brush.setAttribute("visibility", range ? "visible" : "hidden");
    const place = (/** @type {number} */ value) => Math.min(Math.max(axis.names ? value / axis.names.length : Number.isFinite(value) ? axis.place(value) ?? 0 : value > 0 ? 1 : 0, 0), 1);
    if (range) {
      const [low, high] = [this.y?.(place(range[0])) ?? 0, this.y?.(place(range[1])) ?? 0];
      brush.setAttribute("y", String(high));
      brush.setAttribute("height", String(Math.max(low - high, 2)));
    }
    for (const [input, bound] of /** @type {[HTMLInputElement, number][]} */ ((this.inputs?.get(axis.name) ?? []).map((each, k) => [each, range?.[k] ?? NaN]))) {
      const text = Number.isFinite(bound) ? String(Number(bound.toPrecision(4))) : "";
      if (document.activeElement !== input && input.value !== text) input.value = text;
    }
  }

  addInputs() {
    /** @type {Map<string, HTMLInputElement[]>} */
    this.inputs = new Map();
    this.form.replaceChildren();
    for (const axis of this.axes.filter((each) => !each.names)) {
      const set = document.createElement("fieldset");
      const legend = document.createElement("legend");
      legend.textContent = axis.name;
      const pair = ["least", "greatest"].map((which) => {
        const input = document.createElement("input");
        input.inputMode = "decimal";
        input.placeholder = which;
        input.setAttribute("aria-label", `${which} ${axis.name}`);
        input.addEventListener("change", () => this.readInputs(axis.name));
        return input;
      });
      set.append(legend, pair[0], "to", pair[1]);
      this.form.append(set);
      this.inputs.set(axis.name, pair);
    }
  }

  /** @param {string} name */
  readInputs(name) {
    const [low, high] = (this.inputs?.get(name) ?? []).map((input) => (input.value.trim() === "" ? NaN : Number(input.value.replace(",", "."))));
    const both = Number.isNaN(low) && Number.isNaN(high);
    this.setRange(name, both ? null : [Number.isNaN(low) ? -Infinity : low, Number.isNaN(high) ? Infinity : high]);
  }

  addSelect() {
    const wanted = new URLSearchParams(location.search).get("x");
    this.select.replaceChildren(...this.names.map((name) => new Option(name, name, false, name === wanted)));
  }

  changeSelect() {
    changeUrl((query) => query.set("x", this.select.value));
    this.drawScatter();
    this.choose();
  }

  drawScatter() {
    const i = Math.max(this.names.indexOf(this.select.value), 0);
    const [across, up] = [this.axes[i], this.axes[this.axes.length - 1]];
    const [width, height, left, bottom, top, right] = [Math.max(this.scatter.parentElement?.clientWidth ?? 800, 320), 280, 56, 40, 16, 24];
    const x = (/** @type {number} */ place) => left + 8 + place * (width - left - right - 16);
    const y = (/** @type {number} */ place) => height - bottom - 8 - place * (height - top - bottom - 16);
    this.scatter.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.scatter.replaceChildren(svg("path", { class: "axis", d: `M${left} ${top}V${height - bottom}H${width - right}`, fill: "none" }));
    for (const tick of across.ticks) this.scatter.append(svg("text", { class: "tick", x: x(tick.place), y: height - bottom + 16, "text-anchor": "middle" }, shortened(tick.label, 14)));
    for (const tick of up.ticks) this.scatter.append(svg("text", { class: "tick", x: left - 6, y: y(tick.place) + 4, "text-anchor": "end" }, shortened(tick.label, 8)));
    this.scatter.append(svg("text", { x: width - right, y: height - 4, "text-anchor": "end" }, shortened(across.name, 40)));
    this.dots = this.trials.map((trial) => {
      const [px, py] = [across.place(this.value(trial, i)), up.place(trial.best)];
      if (px === null || py === null) return null;
      const dot = svg("circle", { class: trial.rank === undefined ? "dot" : `dot ranked c${trial.rank}`, cx: x(px), cy: y(py), r: trial.rank === 0 ? 6 : 4 });
      dot.append(svg("title", {}, `trial ${trial.id}: ${this.metric} ${format(trial.best)}, ${across.name} ${this.value(trial, i)}`));
      return dot;
    });
    for (const dot of [...this.dots].reverse()) if (dot) this.scatter.append(dot);
  }

  addTableHead() {
    const row = document.createElement("tr");
    this.columns = ["trial", "state", this.metric, "batches", ...this.names];
    for (const [i, name] of this.columns.entries()) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = name;
      if (i !== 1 && !(i > 3 && this.axes[i - 4].names)) cell.className = "n";
      row.append(cell);
    }
    this.root.querySelector("#chosen thead")?.replaceChildren(row);
  }

  /** @param {Trial[]} chosen */
  showTable(chosen) {
    const status = this.root.querySelector("#chosen-heading [role=status]");
    const shown = chosen.slice(0, TABLE_ROWS);
    if (status) status.textContent = `${chosen.length} of ${this.trials.length}${shown.length < chosen.length ? `, the best ${shown.length} shown` : ""}`;
    this.root.querySelector("#chosen tbody")?.replaceChildren(...shown.map((trial) => this.row(trial)));
  }

  /** @param {Trial} trial */
  row(trial) {
    const row = document.createElement("tr");
    const link = document.createElement("a");
    link.href = `/trials/${trial.id}`;
    if (trial.rank !== undefined) link.append(swatch(trial.rank));
    link.append(String(trial.id));
    const state = document.createElement("span");
    state.className = "state";
    state.dataset.state = trial.state;
    state.textContent = trial.word;
    const texts = [trial.text, ...[trial.batches, ...trial.values].map((value) => (typeof value === "string" ? value : format(/** @type {number | null} */ (value))))];
    for (const [i, content] of [link, state, ...texts].entries()) {
      const cell = document.createElement(i ? "td" : "th");
      if (!i) cell.setAttribute("scope", "row");
      cell.dataset.label = this.columns?.[i] ?? "";
      if (i !== 1 && !(i > 3 && this.axes[i - 4].names)) cell.className = "n";
      cell.append(content);
      row.append(cell);
    }
    return row;
  }

  /** Save a picture with its present colours. @param {string} which */
  save(which) {
    const picture = which === "scatter" ? this.scatter : this.parallel;
    const copy = /** @type {SVGElement} */ (picture.cloneNode(true));
    const originals = picture.querySelectorAll("*");
    copy.querySelectorAll("*").forEach((element, i) => {
      const look = getComputedStyle(originals[i]);
      for (const name of ["stroke", "fill", "stroke-width", "opacity", "fill-opacity", "paint-order"]) element.setAttribute(name, look.getPropertyValue(name));
      element.removeAttribute("class");
    });
    copy.querySelectorAll("[visibility=hidden]").forEach((element) => element.remove());
    copy.setAttribute("xmlns", SVG);
    copy.setAttribute("font-family", "sans-serif");
    copy.setAttribute("font-size", "11");
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([copy.outerHTML], { type: "image/svg+xml" }));
    link.download = `${which}.svg`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
}

const root = document.getElementById("search");
if (root) {
  const search = new Search(root);
  const message = document.createElement("p");
  message.className = "message";
  /** Fetch the trials and draw them. */
  const load = async () => {
    const answer = await fetch(root.dataset.src ?? "");
    const data = await answer.json();
    if (!answer.ok) throw new Error(data.error ?? answer.statusText);
    if (!search.dragging) search.show(data);
    message.remove();
    root.dataset.state = "drawn";
  };
  /** @param {Error} error */
  const complain = (error) => {
    message.textContent = `The trials could not be read: ${error.message}`;
    root.prepend(message);
  };
  load().catch(complain);
  let waiting = 0;
  document.addEventListener("det:rows", (event) => {
    const rows = /** @type {CustomEvent<Record<string, Record<string, string>>>} */ (event).detail;
    const names = Object.keys(rows[root.dataset.refreshOn ?? ""] ?? {});
    if (!names.some((name) => ["state", "trials", "best", "progress"].includes(name))) return;
    waiting ||= window.setTimeout(() => ((waiting = 0), load().catch(complain)), REDRAW_MS);
  });
}
