// @ts-check
/** Page of a search: pictures of its trials, in which choosing ranges filters the table. */
import { formatRanges, isWithin, makeAxis, parseRanges } from "./axes.js";
import { RANKED, format, formatDuration } from "./curves.js";
import { showImportance } from "./importance.js";
import { swatch } from "./legend.js";
import { explainMarks, markedWord } from "./marks.js";
import { Parallel } from "./parallel.js";
import { drawHeatMap, drawHistory, drawScatter, drawTimeline } from "./search_pictures.js";
import { savePicture } from "./svg.js";
import { changeUrl } from "./view_state.js";

/** @typedef {[number, number | null, string]} RunSpan When a run began and ended, in seconds, and how. */
/**
 * @typedef {object} Trial
 * @property {number} id
 * @property {string} word how it ended, or what it does
 * @property {number} batches
 * @property {number | null} value of the chosen metric
 * @property {string} text the same for people
 * @property {unknown[]} values of the hyperparameters
 * @property {number} created in seconds
 * @property {RunSpan[]} runs
 * @property {number} [rank]
 */
/** @typedef {{metric: string, smaller: boolean, names: string[], scales: string[], now: number, trials: Trial[]}} Data */
/** @typedef {import("./axes.js").Axis} Axis */

const TABLE_ROWS = 200;
/** Number of columns up to which the table fits in a window. */
const MOST_IN_VIEW = 14;
/** Least width of a picture, in pixels. */
const LEAST_WIDTH = 320;
/** Milliseconds after a change until the trials are drawn again. */
const REDRAW_MS = 2000;
/** Words for trials that have not ended. */
const GOING_ON = ["running", "waiting", "paused", "stopping"];
/** Factor by which the number of trials that have ended must grow until their importance is asked for again. */
const MORE_TRIALS = 1.25;
/** Controls whose state is in the URL, with their values when it has none. */
const CONTROLS = ["x", "across", "up", "log", "greater"];

class Search {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    /** @type {Data} */
    this.data = { metric: "", smaller: true, names: [], scales: [], now: 0, trials: [] };
    /** @type {Axis[]} */
    this.axes = [];
    this.ranges = parseRanges(new URLSearchParams(location.search).get("ranges"));
    this.parallel = new Parallel(this.picture("parallel"), (name, range) => this.setRange(name, range));
    this.form = /** @type {HTMLFormElement} */ (root.querySelector(".ranges"));
    this.form.addEventListener("submit", (event) => event.preventDefault());
    for (const name of CONTROLS) this.control(name).addEventListener("change", () => this.readControl(name));
    for (const name of ["log", "greater"]) /** @type {HTMLInputElement} */ (this.control(name)).checked = new URLSearchParams(location.search).get(name) === "1";
    for (const button of /** @type {NodeListOf<HTMLButtonElement>} */ (root.querySelectorAll("[data-save]"))) {
      button.hidden = false;
      button.addEventListener("click", () => savePicture(this.picture(button.dataset.save ?? ""), button.dataset.save ?? ""));
    }
    this.picture("timeline").addEventListener("click", (event) => {
      const run = event.target instanceof Element ? event.target.closest("[data-trial]") : null;
      if (run) location.assign(`/trials/${run.getAttribute("data-trial")}`);
    });
    this.width = 0;
    new ResizeObserver(() => root.clientWidth !== this.width && this.data.trials.length && this.draw()).observe(root);
  }

  /** @param {string} name @returns {SVGElement} */
  picture(name) {
    return /** @type {SVGElement} */ (this.root.querySelector(`svg.${name}`));
  }

  /** @param {string} name @returns {HTMLInputElement | HTMLSelectElement} */
  control(name) {
    return /** @type {HTMLInputElement | HTMLSelectElement} */ (this.root.querySelector(`[name=${name}]`));
  }

  /** Draw the trials, or draw them again. What the reader has chosen stays. @param {Data} data */
  show(data) {
    const isOther = JSON.stringify([data.metric, data.names]) !== JSON.stringify([this.data.metric, this.data.names]);
    this.data = data;
    data.trials.forEach((trial, rank) => (trial.rank = rank < RANKED && trial.value !== null ? rank : undefined));
    this.makeAxes();
    if (isOther) {
      this.addInputs();
      this.addSelects();
      this.addTableHead();
    }
    this.draw();
  }

  makeAxes() {
    const { metric, names, scales, trials } = this.data;
    const columns = names.map((name, i) => makeAxis(name, trials.map((trial) => trial.values[i]), scales[i] === "log"));
    this.axes = [...columns, makeAxis(metric, trials.map((trial) => trial.value), this.isOn("log"))];
  }

  /** Whether a box is checked. @param {string} name */
  isOn(name) {
    return /** @type {HTMLInputElement} */ (this.control(name)).checked;
  }

  draw() {
    const { trials, names, now } = this.data;
    this.width = this.root.clientWidth;
    const width = Math.max(this.width, LEAST_WIDTH);
    const smaller = this.data.smaller !== this.isOn("greater");
    const metric = this.axes[names.length];
    const column = (/** @type {string} */ name) => Math.max(names.indexOf(this.control(name).value), 0);
    this.parallel.draw(width, trials, this.axes, (trial, i) => this.value(trial, i));
    const x = column("x");
    const history = drawHistory(this.picture("history"), width, trials, metric, smaller);
    const scatter = drawScatter(this.picture("scatter"), width, trials, this.axes[x], metric, (trial) => this.value(trial, x));
    this.dots = [history, scatter.dots];
    /** @type {HTMLElement} */ (this.picture("heat").closest("section")).hidden = !names.length;
    const [least, greatest] = names.length ? drawHeatMap(this.picture("heat"), width, trials, this.axes, [column("across"), column("up")], metric, smaller) : ["", ""];
    const places = drawTimeline(this.picture("timeline"), width, trials, now);
    for (const [name, words] of Object.entries({ trials: trials.map((trial) => trial.word), runs: trials.flatMap((trial) => trial.runs.map(([, , word]) => word)) })) {
      explainMarks(/** @type {HTMLElement} */ (this.root.querySelector(`[data-marks=${name}]`)), words);
    }
    this.say("best", `The line is the ${smaller ? "least" : "greatest"} value so far.`);
    const shades = least && ` The stronger the colour, the ${smaller ? "smaller" : "greater"}, from ${smaller ? greatest : least} to ${smaller ? least : greatest}.`;
    this.say("shades", `Each cell has the median ${metric.name} of its trials.${shades}`);
    this.say("places", `At most ${places} trial${places > 1 ? "s" : ""} ran at a time.`);
    this.choose();
  }

  /** @param {string} id @param {string} text */
  say(id, text) {
    const place = this.root.querySelector(`[data-say=${id}]`);
    if (place) place.textContent = text;
  }

  /** @param {Trial} trial @param {number} i */
  value(trial, i) {
    return i < this.data.names.length ? trial.values[i] : trial.value;
  }

  /** Whether a trial is within all chosen ranges. @param {Trial} trial */
  chosen(trial) {
    return this.axes.every((axis, i) => {
      const range = this.ranges.get(axis.name);
      return !range || isWithin(axis, this.value(trial, i), range);
    });
  }

  /** @param {string} name */
  readControl(name) {
    const control = this.control(name);
    const value = control instanceof HTMLInputElement ? (control.checked ? "1" : "") : control.value;
    changeUrl((query) => (value ? query.set(name, value) : query.delete(name)));
    if (name === "log") this.makeAxes();
    this.draw();
  }

  /** @param {string} name @param {[number, number] | null} range */
  setRange(name, range) {
    if (range) this.ranges.set(name, range);
    else this.ranges.delete(name);
    changeUrl((query) => (this.ranges.size ? query.set("ranges", formatRanges(this.ranges)) : query.delete("ranges")));
    this.choose();
  }

  /** Show which trials are chosen, in the pictures, the inputs and the table. */
  choose() {
    const chosen = this.data.trials.filter((trial) => this.chosen(trial));
    const ids = new Set(chosen.map((trial) => trial.id));
    this.data.trials.forEach((trial, i) => {
      for (const shapes of [this.parallel.lines, ...(this.dots ?? [])]) shapes[i]?.classList.toggle("out", !ids.has(trial.id));
    });
    this.axes.forEach((axis, i) => {
      const range = this.ranges.get(axis.name);
      this.parallel.showRange(axis, i, range);
      (this.inputs?.get(axis.name) ?? []).forEach((input, k) => {
        const bound = range?.[k] ?? NaN;
        const text = Number.isFinite(bound) ? String(Number(bound.toPrecision(4))) : "";
        if (document.activeElement !== input && input.value !== text) input.value = text;
      });
    });
    this.showTable(chosen);
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

  addSelects() {
    const { names } = this.data;
    const query = new URLSearchParams(location.search);
    for (const [name, position] of /** @type {[string, number][]} */ ([["x", 0], ["across", 0], ["up", 1]])) {
      const wanted = query.get(name) ?? names[Math.min(position, names.length - 1)];
      this.control(name).replaceChildren(...names.map((one) => new Option(one, one, false, one === wanted)));
    }
  }

  /** Columns of the table. @returns {{name: string, isNumber: boolean, content: (trial: Trial) => string | Node}[]} */
  columns() {
    const { metric, names, now } = this.data;
    const number = (/** @type {string} */ name, /** @type {(trial: Trial) => string} */ content) => ({ name, isNumber: true, content });
    return [
      { name: "trial", isNumber: true, content: linkTo },
      { name: "state", isNumber: false, content: (trial) => markedWord(trial.word) },
      number(metric, (trial) => trial.text),
      number("batches", (trial) => format(trial.batches)),
      number("waited", (trial) => formatDuration(Math.max((trial.runs[0]?.[0] ?? (trial.word === "waiting" ? now : trial.created)) - trial.created, 0))),
      number("ran", (trial) => formatDuration(trial.runs.reduce((sum, [start, end]) => sum + (end ?? now) - start, 0))),
      ...names.map((name, i) => ({
        name,
        isNumber: !this.axes[i].names,
        content: (/** @type {Trial} */ trial) => text(trial.values[i]),
      })),
    ];
  }

  addTableHead() {
    const row = document.createElement("tr");
    const columns = this.columns();
    if (columns.length > MOST_IN_VIEW) {
      const around = this.root.querySelector("#chosen")?.parentElement;
      Object.assign(around ?? {}, { className: "scroll sideways", tabIndex: 0, role: "region", ariaLabel: "Table of trials" });
    }
    for (const { name, isNumber } of columns) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = name;
      if (isNumber) cell.className = "n";
      row.append(cell);
    }
    this.root.querySelector("#chosen thead")?.replaceChildren(row);
  }

  /** @param {Trial[]} chosen */
  showTable(chosen) {
    const status = this.root.querySelector("#chosen-heading [role=status]");
    const shown = chosen.slice(0, TABLE_ROWS);
    if (status) status.textContent = `${chosen.length} of ${this.data.trials.length}${shown.length < chosen.length ? `, the first ${shown.length} shown` : ""}`;
    const file = /** @type {HTMLAnchorElement | null} */ (this.root.querySelector(".export"));
    if (file) file.search = this.ranges.size ? `?trials=${chosen.map((trial) => trial.id)}` : "";
    const columns = this.columns();
    const rows = shown.map((trial) => {
      const row = document.createElement("tr");
      for (const [i, { name, isNumber, content }] of columns.entries()) {
        const cell = document.createElement(i ? "td" : "th");
        if (!i) cell.setAttribute("scope", "row");
        cell.dataset.label = name;
        if (isNumber) cell.className = "n";
        cell.append(content(trial));
        row.append(cell);
      }
      return row;
    });
    this.root.querySelector("#chosen tbody")?.replaceChildren(...rows);
  }
}

/** @param {unknown} value */
const text = (value) => (typeof value === "string" ? value : format(/** @type {number | null} */ (value)));

/** @param {Trial} trial */
function linkTo(trial) {
  const link = document.createElement("a");
  link.href = `/trials/${trial.id}`;
  if (trial.rank !== undefined) link.append(swatch(trial.rank));
  link.append(String(trial.id));
  return link;
}

const root = document.getElementById("search");
if (root) {
  const search = new Search(root);
  const message = document.createElement("p");
  message.className = "message";
  let wanted = 0;
  /** Fetch the trials and draw them, and ask for the importance if many more have ended. */
  const load = async () => {
    const answer = await fetch(root.dataset.src ?? "");
    const data = await answer.json();
    if (!answer.ok) throw new Error(data.error ?? answer.statusText);
    if (!search.parallel.dragging) search.show(data);
    message.remove();
    root.dataset.state = "drawn";
    const ended = search.data.trials.filter((trial) => !GOING_ON.includes(trial.word)).length;
    if (ended < wanted) return;
    wanted = Math.ceil(ended * MORE_TRIALS) + 1;
    void showImportance(/** @type {HTMLElement} */ (document.getElementById("importance")));
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
    if (!names.some((name) => ["state", "trials", "failed", "best", "progress"].includes(name))) return;
    waiting ||= window.setTimeout(() => ((waiting = 0), load().catch(complain)), REDRAW_MS);
  });
}
