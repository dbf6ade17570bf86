// @ts-check
/** Parallel coordinates of the trials of a search, on whose axes the reader drags ranges. */
import { format } from "./curves.js";
import { mark } from "./marks.js";
import { clear, shortened, svg } from "./svg.js";

/** @typedef {import("./axes.js").Axis} Axis */
/** @typedef {import("./search.js").Trial} Trial */

const [HEIGHT, TOP, BOTTOM, SIDE] = [344, 56, 32, 56];
/** Least distance between two axes. */
const AXIS_PX = 120;
/** Distance along an axis below which two ends are no range. */
const LEAST = 0.01;
/** Number of trials above which lines without a colour of their own are fainter. */
const MANY = 200;
/** Width of a character of a label, at most. */
const CHARACTER_PX = 6.5;

const y = (/** @type {number} */ place) => HEIGHT - BOTTOM - place * (HEIGHT - TOP - BOTTOM);

export class Parallel {
  /** @param {SVGElement} picture @param {(name: string, range: [number, number] | null) => void} choose */
  constructor(picture, choose) {
    this.picture = picture;
    this.choose = choose;
    this.dragging = false;
    /** @type {SVGElement[]} */
    this.lines = [];
    /** @type {SVGElement[]} */
    this.brushes = [];
  }

  /** @param {number} room @param {Trial[]} trials best first @param {Axis[]} axes @param {(trial: Trial, i: number) => unknown} value */
  draw(room, trials, axes, value) {
    const width = Math.max(room, axes.length * AXIS_PX);
    clear(this.picture, width, HEIGHT);
    this.picture.classList.toggle("many", trials.length > MANY);
    const x = (/** @type {number} */ i) => SIDE + (i * (width - 2 * SIDE)) / Math.max(axes.length - 1, 1);
    this.lines = trials.map((trial) => {
      const points = axes.flatMap((axis, i) => {
        const place = axis.place(value(trial, i));
        return place === null ? [] : [[x(i), y(place)]];
      });
      const group = svg("g", { class: "line" });
      const look = trial.rank === undefined ? "" : `ranked c${trial.rank}`;
      group.append(svg("polyline", { points: points.map(([px, py]) => `${px.toFixed(1)},${py.toFixed(1)}`).join(" "), class: look }));
      group.append(svg("title", {}, `trial ${trial.id}, ${trial.word}: ${axes[axes.length - 1].name} ${format(trial.value)}`));
      const end = points[points.length - 1];
      if (end) group.append(mark(trial.word, end[0], end[1], { rank: trial.rank, size: 1 }));
      return group;
    });
    this.picture.append(...[...this.lines].reverse());
    this.brushes = axes.map((axis, i) => this.drawAxis(axis, x(i), i === axes.length - 1));
  }

  /** @param {Axis} axis @param {number} x @param {boolean} last */
  drawAxis(axis, x, last) {
    const group = svg("g", {});
    group.append(svg("line", { class: "axis", x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }));
    group.append(svg("text", { x, y: 16, "text-anchor": "middle", "font-weight": last ? 700 : 400 }, shortened(axis.name, 18)));
    const [least, greatest] = axis.ends;
    for (const [label, at] of /** @type {[string, number][]} */ ([[greatest, TOP - 14], [least, HEIGHT - BOTTOM + 20]])) {
      group.append(svg("text", { class: "tick", x, y: at, "text-anchor": "middle" }, shortened(label, 16)));
    }
    for (const tick of axis.ticks.filter(({ place }) => place > 0.06 && place < 0.94)) {
      const label = shortened(tick.label, 12);
      group.append(svg("rect", { class: "plate", x: x + 4, y: y(tick.place) - 7, width: label.length * CHARACTER_PX + 4, height: 14 }));
      group.append(svg("text", { class: "tick", x: x + 6, y: y(tick.place) + 4 }, label));
    }
    const brush = svg("rect", { class: "brush", x: x - 8, width: 16, y: 0, height: 0, visibility: "hidden" });
    const grab = svg("rect", { class: "grab", x: x - 16, width: 32, y: TOP - 8, height: HEIGHT - TOP - BOTTOM + 16 });
    group.append(brush, grab);
    this.picture.append(group);
    this.follow(grab, axis);
    return brush;
  }

  /** Let the reader drag a range along an axis. @param {SVGElement} grab @param {Axis} axis */
  follow(grab, axis) {
    const at = (/** @type {PointerEvent} */ event) => {
      const box = this.picture.getBoundingClientRect();
      const place = (HEIGHT - BOTTOM - ((event.clientY - box.top) / box.height) * HEIGHT) / (HEIGHT - TOP - BOTTOM);
      return Math.min(Math.max(place, 0), 1);
    };
    let from = 0;
    grab.addEventListener("pointerdown", (event) => {
      grab.setPointerCapture(event.pointerId);
      this.dragging = true;
      from = at(event);
    });
    grab.addEventListener("pointermove", (event) => {
      const to = at(event);
      if (!grab.hasPointerCapture(event.pointerId) || Math.abs(from - to) < LEAST) return;
      this.choose(axis.name, [axis.value(Math.min(from, to)), axis.value(Math.max(from, to))]);
    });
    grab.addEventListener("lostpointercapture", () => (this.dragging = false));
    grab.addEventListener("pointerup", (event) => Math.abs(from - at(event)) < LEAST && this.choose(axis.name, null));
  }

  /** Show the range of an axis. @param {Axis} axis @param {number} i @param {[number, number] | undefined} range */
  showRange(axis, i, range) {
    const brush = this.brushes[i];
    brush.setAttribute("visibility", range ? "visible" : "hidden");
    if (!range) return;
    const place = (/** @type {number} */ value) => (axis.names ? value / axis.names.length : Number.isFinite(value) ? axis.place(value) ?? 0 : value > 0 ? 1 : 0);
    const [low, high] = range.map((value) => y(Math.min(Math.max(place(value), 0), 1)));
    brush.setAttribute("y", String(high));
    brush.setAttribute("height", String(Math.max(low - high, 2)));
  }
}
