// @ts-check
/** Pictures of a search: its history, a scatter plot, a heat map and the places on which trials ran. */
import { makeAxis } from "./axes.js";
import { DURATION_STEPS, format, formatDuration } from "./curves.js";
import { mark } from "./marks.js";
import { bestSoFar, countOpen, groupCells, packLanes } from "./search_data.js";
import { clear, drawFrame, svg } from "./svg.js";

/** @typedef {import("./axes.js").Axis} Axis */
/** @typedef {import("./search.js").Trial} Trial */

/** Distances of a frame from the edges of its picture. */
const MARGINS = { left: 80, right: 16, top: 12, bottom: 40 };
const HEIGHT = 280;
/** Height of the curve of trials that wait. */
const WAITING = 48;
/** Number of cells into which an axis of numbers is divided. */
const CELLS = 8;
/** Least size of a cell with a number in it, in pixels. */
const [LABEL_WIDTH, LABEL_HEIGHT] = [48, 16];
/** Least distance between the ticks of a timeline, in pixels. */
const TICK_WIDTH = 72;

/** @param {Trial} trial */
const describe = (trial, /** @type {string} */ metric) => `trial ${trial.id}, ${trial.word}: ${metric} ${format(trial.value)}`;

/**
 * Draw a mark per trial.
 * @param {SVGElement} picture @param {number} width @param {Trial[]} trials best first @param {Axis} across @param {Axis} up @param {(trial: Trial) => unknown} value on the horizontal axis
 * @returns {{dots: (SVGElement | null)[], x: (place: number) => number, y: (place: number | null) => number}}
 */
export function drawScatter(picture, width, trials, across, up, value) {
  clear(picture, width, HEIGHT);
  const { x, y } = drawFrame(picture, { width, height: HEIGHT, ...MARGINS }, across, up, trials.some((trial) => trial.value === null));
  const dots = trials.map((trial) => {
    const place = across.place(value(trial));
    return place === null ? null : mark(trial.word, x(place), y(up.place(trial.value)), { rank: trial.rank, title: `${describe(trial, up.name)}, ${across.name} ${value(trial)}` });
  });
  picture.append(...dots.filter((dot) => dot !== null).reverse());
  return { dots, x, y };
}

/** Draw the value of each trial in the order of their numbers, and the best so far. @param {SVGElement} picture @param {number} width @param {Trial[]} trials @param {Axis} up @param {boolean} smaller */
export function drawHistory(picture, width, trials, up, smaller) {
  const byNumber = [...trials].sort((a, b) => a.id - b.id);
  const numbers = new Map(byNumber.map((trial, i) => [trial.id, i + 1]));
  const axis = makeAxis("number of the trial", [1, Math.max(trials.length, 2)], false);
  const across = { ...axis, ticks: axis.ticks.filter(({ label }) => Number.isInteger(Number(label))) };
  const { dots, x, y } = drawScatter(picture, width, trials, across, up, (trial) => numbers.get(trial.id));
  const best = bestSoFar(byNumber.map((trial) => trial.value), smaller);
  const steps = best.flatMap((value, i) => {
    const [at, place] = [across.place(i + 1), up.place(value)];
    return at === null || place === null ? [] : [`H${x(at).toFixed(1)}V${y(place).toFixed(1)}`];
  });
  if (steps.length) picture.append(svg("path", { class: "best", d: steps.join("").replace(/^H([\d.]+)V([\d.]+)/, "M$1 $2") }));
  return dots;
}

/** Return an axis with a name for each of a few values, or the axis itself if there are more. @param {Axis} axis @param {unknown[]} values */
function cellAxis(axis, values) {
  const distinct = new Set(values.filter((value) => value != null));
  if (distinct.size > CELLS) return axis;
  const named = makeAxis(axis.name, values.map((value) => (value == null ? null : String(value))), false);
  return { ...named, ticks: named.ticks.map((tick) => ({ ...tick, label: axis.names ? tick.label : format(Number(tick.label)) })) };
}

/**
 * Draw the median value of the trials in each cell of two hyperparameters.
 * @param {SVGElement} picture @param {number} width @param {Trial[]} trials @param {Axis[]} axes @param {[number, number]} columns positions of the hyperparameters among the axes @param {Axis} metric @param {boolean} smaller whether smaller values have a stronger colour
 * @returns {[string, string]} least and greatest median
 */
export function drawHeatMap(picture, width, trials, axes, [i, j], metric, smaller) {
  clear(picture, width, HEIGHT);
  const [across, up] = [i, j].map((k) => cellAxis(axes[k], trials.map((trial) => trial.values[k])));
  const { x, y } = drawFrame(picture, { width, height: HEIGHT, ...MARGINS }, across, up, false);
  const [columns, rows] = [across, up].map((axis) => Math.min(axis.names?.length ?? CELLS, 3 * CELLS));
  const place = (/** @type {Axis} */ axis, /** @type {unknown} */ value) => axis.place(axis.names && value != null ? String(value) : value);
  const places = trials.map((trial) => ({ across: place(across, trial.values[i]), up: place(up, trial.values[j]), value: trial.value }));
  const [cellWidth, cellHeight] = [(x(1) - x(0)) / columns, (y(0) - y(1)) / rows];
  const hasRoom = cellWidth >= LABEL_WIDTH && cellHeight >= LABEL_HEIGHT;
  const cells = groupCells(places, columns, rows);
  const shades = makeAxis(metric.name, cells.map((cell) => cell.median), false);
  for (const cell of cells) {
    const [px, py] = [x(0) + cell.column * cellWidth, y(0) - (cell.row + 1) * cellHeight];
    const strength = shades.place(cell.median);
    const shade = strength === null ? 0 : 0.08 + 0.84 * (smaller ? 1 - strength : strength);
    const group = svg("g", {});
    group.append(svg("rect", { class: strength === null ? "cell none" : "cell", x: px, y: py, width: cellWidth, height: cellHeight, "fill-opacity": shade.toFixed(2) }));
    group.append(svg("title", {}, `${cell.count} trials, median ${metric.name} ${format(cell.median)}${cell.without ? `, and ${cell.without} without a value` : ""}`));
    const label = cell.median === null ? "" : format(cell.median);
    if (hasRoom && label) group.append(svg("text", { class: "median", x: px + cellWidth / 2, y: py + cellHeight / 2 + 4, "text-anchor": "middle" }, label));
    if (cell.without) group.append(mark("failed", px + cellWidth - 7, py + 7, { size: 0.8 }));
    picture.append(group);
  }
  return shades.ends;
}

/**
 * Draw when trials waited and ran. A row is a place that runs one trial at a time.
 * @param {SVGElement} picture @param {number} width @param {Trial[]} trials @param {number} now in seconds
 */
export function drawTimeline(picture, width, trials, now) {
  const spans = trials.flatMap((trial) => trial.runs.map(([start, end, word]) => ({ trial, start, end: end ?? now, word })));
  const waits = trials.map(({ created, runs, word }) => ({ start: created, end: runs[0]?.[0] ?? (word === "waiting" ? now : created) }));
  const lanes = packLanes(spans);
  const count = Math.max(1, ...lanes.map(({ lane }) => lane + 1));
  const laneHeight = Math.min(Math.max(Math.floor(HEIGHT / count), 3), 18);
  const { left, right, top, bottom } = MARGINS;
  const lanesTop = top + WAITING + 12;
  const floor = lanesTop + count * laneHeight;
  clear(picture, width, floor + bottom);
  const start = Math.min(...trials.map((trial) => trial.created));
  const end = Math.max(start + 1, ...spans.map((span) => span.end), ...waits.map((wait) => wait.end));
  const x = (/** @type {number} */ time) => left + ((time - start) / (end - start)) * (width - left - right);

  const open = countOpen(waits);
  const most = Math.max(1, ...open.map(([, number]) => number));
  const y = (/** @type {number} */ number) => top + WAITING - (number / most) * (WAITING - 8);
  const outline = open.map(([at, number]) => `H${x(at).toFixed(1)}V${y(number).toFixed(1)}`).join("");
  picture.append(svg("path", { class: "waits", d: `M${left} ${y(0)}${outline}V${y(0)}Z` }));
  picture.append(svg("text", { class: "tick", x: left - 6, y: y(most) + 4, "text-anchor": "end" }, `${most} waiting`));
  picture.append(svg("text", { class: "tick", x: left - 6, y: y(0) + 4, "text-anchor": "end" }, "0"));

  for (const { span, lane } of lanes) {
    const [from, to, py] = [x(span.start), x(span.end), lanesTop + lane * laneHeight];
    const bar = svg("g", { class: span.word === "failed" ? "run bad" : "run", "data-trial": span.trial.id });
    bar.append(svg("rect", { x: from.toFixed(1), y: py + 1, width: Math.max(to - from - 1, 1).toFixed(1), height: laneHeight - 2, class: to - from < 4 ? "thin" : span.word === "running" ? "open" : "" }));
    bar.append(svg("title", {}, `trial ${span.trial.id}, ${span.word}: ran ${formatDuration(span.end - span.start)}, waited ${formatDuration(Math.max((span.trial.runs[0]?.[0] ?? now) - span.trial.created, 0))}`));
    if (laneHeight >= 8 && to - from >= 14) bar.append(mark(span.word, to - 8, py + laneHeight / 2, { size: 0.8 }));
    picture.append(bar);
  }
  picture.append(svg("path", { class: "axis", d: `M${left} ${top}V${floor}H${width - right}`, fill: "none" }));
  const room = (width - left - right) / TICK_WIDTH;
  const step = DURATION_STEPS.find((one) => (end - start) / one <= room) ?? end - start;
  for (let time = 0; time <= end - start; time += step) picture.append(svg("text", { class: "tick", x: x(start + time), y: floor + 16, "text-anchor": "middle" }, formatDuration(time)));
  picture.append(svg("text", { x: (left + width - right) / 2, y: floor + bottom - 6, "text-anchor": "middle" }, "time since the first trial"));
  picture.append(svg("text", { class: "tick", x: left - 6, y: (lanesTop + floor) / 2 + 4, "text-anchor": "end" }, "running"));
  return count;
}
