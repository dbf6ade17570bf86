// Tests of the scripts' pure functions: node --test scripts.test.mjs
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

const directory = new URL("../det_server/static/", import.meta.url);
/** Import a module of the browser, whose file name says nothing to node about its kind. */
async function load(name) {
  const text = await readFile(new URL(name, directory), "utf8");
  const imports = [...text.matchAll(/from "\.\/([\w.]+)"/g)];
  let whole = text;
  for (const [, other] of imports) whole = whole.replace(`"./${other}"`, JSON.stringify(await url(other)));
  return import(await url(name, whole));
}
async function url(name, text) {
  return "data:text/javascript;base64," + Buffer.from(text ?? (await readFile(new URL(name, directory)))).toString("base64");
}
const curves = await load("curves.js");
const axes = await load("axes.js");
const search = await load("search_data.js");

test("smoothing has no bias at the start, and none means none", () => {
  assert.deepEqual(curves.smooth([3, 3, 3], 0.9).map((v) => Number(v.toFixed(9))), [3, 3, 3]);
  assert.deepEqual(curves.smooth([1, 2], 0), [1, 2]);
  const noisy = [0, 1, 0, 1, 0, 1, 0, 1];
  const smoothed = curves.smooth(noisy, 0.9);
  assert.ok(Math.max(...smoothed.slice(4)) - Math.min(...smoothed.slice(4)) < 0.3);
});

test("a part of a curve is replaced, and the rest stays", () => {
  const curve = { id: 1, label: "old", x: [0, 10, 20, 30], y: [1, 2, 3, 4] };
  const part = { id: 1, label: "new", x: [11, 15, 20], y: [7, 8, 9] };
  assert.deepEqual(curves.replacePart(curve, part, 10, 20), { id: 1, label: "new", x: [0, 10, 11, 15, 20, 30], y: [1, 2, 7, 8, 9, 4] });
  assert.deepEqual(curves.replacePart(curve, part, 15, Infinity).x, [0, 10, 11, 15, 20]);
  assert.deepEqual(curves.replacePart(curve, { ...part, x: [], y: [] }, Infinity, Infinity).x, curve.x);
});

test("a part of a curve keeps the gaps and positions of the rest", () => {
  const curve = { id: 1, label: "a", x: [0, 30], y: [1, 4], gaps: [[5, "NaN"], [15, "NaN"], [40, "Infinity"]], positions: [[0, 0], [30, 3]] };
  const part = { id: 1, label: "a", x: [11], y: [7], gaps: [[12, "NaN"]], positions: [[10, 1.5]] };
  const { gaps, positions } = curves.replacePart(curve, part, 10, 20);
  assert.deepEqual(gaps, [[5, "NaN"], [12, "NaN"], [40, "Infinity"]]);
  assert.deepEqual(positions, [[0, 0], [10, 1.5], [30, 3]]);
});

test("steps are placed on lines between known positions, and beyond them", () => {
  assert.deepEqual(curves.interpolate([0, 5, 10, 15, 20, 30], [[0, 100], [10, 200], [20, 200]]), [100, 150, 200, 200, 200, 200]);
  assert.deepEqual(curves.interpolate([3, 50], [[0, 0], [100, 1]]), [0.03, 0.5]);
  assert.deepEqual(curves.interpolate([1, 2], [[7, 5]]), [5, 5]);
  assert.deepEqual(curves.interpolate([1], []), []);
});

test("values that are no numbers make gaps", () => {
  const others = [[0, "NaN"], [12, "NaN"], [14, "NaN"], [16, "Infinity"], [40, "NaN"]];
  assert.deepEqual(curves.findGaps([10, 20, 30], others), [
    { from: 0, to: 0, at: -1, name: "NaN" },
    { from: 12, to: 14, at: 0, name: "NaN" },
    { from: 16, to: 16, at: 0, name: "Infinity" },
    { from: 40, to: 40, at: 2, name: "NaN" },
  ]);
  const placed = curves.placeCurve({ id: 1, label: "a", x: [10, 20], y: [1, 2], gaps: [[14, "NaN"]], positions: [[0, 0], [20, 2]] }, true, 0);
  assert.deepEqual([placed.x, placed.gapsAt], [[1, 2], [{ from: 1.4, to: 1.4, at: 0, name: "NaN" }]]);
  assert.equal(curves.valueAt(placed, 1.4, 0.01), "NaN");
  assert.equal(curves.valueAt(placed, 1.9, 0.01), "2");
  assert.equal(curves.valueAt(placed, 2.5, 0.1), "");
  assert.deepEqual(curves.placeCurve({ ...placed, positions: [] }, true, 0).y, []);
});

test("a curve with more points than there is room for has a band of its extremes", () => {
  const raw = [...Array(1000).keys()].map((i) => (i === 500 ? 99 : i % 2));
  const curve = { x: raw.map((_, i) => i), y: raw.map(() => 0.5), raw, gapsAt: [] };
  const band = curves.envelope(curve, { min: 0, max: 1000 }, 100);
  assert.equal(band.x.length, 50);
  assert.deepEqual([Math.max(...band.high), Math.min(...band.low)], [99, 0]);
  assert.ok(band.y.every((value) => value === 0.5));
  assert.equal(curves.envelope(curve, { min: 0, max: 50 }, 100), null, "all points of a small part are drawn");
});

test("durations have one unit, and moments a date if they need one", () => {
  assert.deepEqual([0, 90, 150, 5400, 9000, 200000].map(curves.formatDuration), ["0 s", "90 s", "2.5 min", "90 min", "2.5 h", "2.3 d"]);
  assert.match(curves.formatMoment(1.7e9, 60), /^\d\d:\d\d:\d\d$/);
  assert.match(curves.formatMoment(1.7e9, 1e6), /^\d\d-\d\d \d\d:\d\d$/);
});

test("ranges have a margin, ignore what a log scale cannot show, and are never empty", () => {
  assert.deepEqual(curves.findRange([0, 10], false, 0.1), { min: -1, max: 11 });
  assert.deepEqual(curves.findRange([NaN, -1, 0, 10, 1000], true, 0), { min: 10, max: 1000 });
  for (const log of [true, false]) {
    for (const values of [[], [5], [NaN, Infinity], [0]]) {
      const { min, max } = curves.findRange(values, log, 0.05);
      assert.ok(max > min && Number.isFinite(max - min), `${values} ${log}: ${min} to ${max}`);
    }
  }
});

test("the nearest index is the nearest", () => {
  for (const [value, index] of [[-5, 0], [0, 0], [4, 0], [6, 1], [10, 1], [99, 2]]) assert.equal(curves.nearestIndex([0, 10, 20], value), index);
});

test("ticks are round, within the range, and few", () => {
  assert.deepEqual(curves.ticks({ min: 0, max: 10 }, 5), [0, 2, 4, 6, 8, 10]);
  assert.deepEqual(curves.ticks({ min: 0.001, max: 10 }, 6, true), [0.001, 0.01, 0.1, 1, 10]);
  for (const [min, max] of [[0, 1e-9], [-3, 4e9], [0.3, 0.3001], [5, 5]]) assert.ok(curves.ticks({ min, max }, 6).length <= 8);
});

test("numbers are short, with a real minus sign", () => {
  assert.equal(curves.format(-0.123456), "−0.1235");
  assert.equal(curves.format(1600), "1600");
  assert.equal(curves.format(null), "–");
});

test("a picture is SVG whose names are text", () => {
  const place = (curve) => curves.placeCurve(curve, false, 0);
  const series = [{ id: 1, label: `<script>"&'`, x: [1, 2], y: [1, 10], rank: 0 }, { id: 2, label: "b", x: [1], y: [-5] }].map(place);
  const look = { title: "<b>", xLabel: "batches", formatX: curves.format, log: true, color: () => "red", foreground: "black", background: "white" };
  const svg = curves.toSvg(series, look);
  assert.ok(!svg.includes("<script") && !svg.includes("<b>"));
  assert.ok(!svg.includes("NaN") && !svg.includes("Infinity"));
  assert.ok(!svg.includes("<circle"), "what a log scale cannot show is left out");
  const draw = (curve) => curves.toSvg([place({ id: 1, label: "trial 1", ...curve })], { ...look, log: false });
  assert.match(draw({ x: [3], y: [2] }), /<circle cx="[\d.]+" cy="[\d.]+"/);
  const ended = draw({ note: "NaN since batch 3", x: [1, 2, 4], y: [1, 2, 3], gaps: [[3, "NaN"]] });
  assert.match(ended, /d="M[\d.,]+L[\d.,]+M[\d.,]+"/, "the line is interrupted");
  assert.match(ended, /<title>trial 1, NaN since batch 3<\/title><\/path><path d="M[\d.,]+m-4-4l8 8m0-8l-8 8"/);
});

test("axes place numbers and names between 0 and 1", () => {
  const log = axes.makeAxis("lr", [0.001, 0.1, null], true);
  assert.equal(log.place(0.01).toFixed(3), "0.500");
  assert.equal(log.place(null), null);
  assert.equal(log.value(0.5).toFixed(3), "0.010");
  const names = axes.makeAxis("optimizer", ["sgd", "adam", "sgd"], false);
  assert.deepEqual(names.names, ["adam", "sgd"]);
  assert.equal(names.place("sgd"), 0.75);
  assert.equal(axes.makeAxis("x", [0, 1], true).place(0.5), 0.5, "a log axis with 0 becomes linear");
});

test("ranges survive their way through a URL", () => {
  const ranges = new Map([["optimizer.lr", [0.001, 0.1]], ["a:b", [-Infinity, 5]], ["c", [1, Infinity]]]);
  assert.deepEqual(axes.parseRanges(axes.formatRanges(ranges)), ranges);
  assert.deepEqual(axes.parseRanges("x~y:~lr:a:b"), new Map());
});

test("a trial without a value is in no range", () => {
  const axis = axes.makeAxis("x", [1, 2, null], false);
  assert.ok(axes.isWithin(axis, 1.5, [1, 2]));
  assert.ok(!axes.isWithin(axis, null, [-Infinity, Infinity]));
});

test("an axis has the labels of its ends, and names in the order of their numbers", () => {
  assert.deepEqual(axes.makeAxis("x", [0.25, 8], false).ends, ["0.25", "8"]);
  assert.deepEqual(axes.makeAxis("x", ["128", "32", "64", "0.5"], false).names, ["0.5", "32", "64", "128"]);
});

test("the best so far skips trials without a value", () => {
  assert.deepEqual(search.bestSoFar([null, 3, 5, null, 2], true), [null, 3, 3, 3, 2]);
  assert.deepEqual(search.bestSoFar([null, 3, 5, null, 2], false), [null, 3, 5, 5, 5]);
});

test("each run gets the first free lane", () => {
  const spans = [[5, 8], [0, 10], [1, 4], [4, 6]].map(([start, end]) => ({ start, end }));
  assert.deepEqual(search.packLanes(spans).map(({ span, lane }) => [span.start, lane]), [[0, 0], [1, 1], [4, 1], [5, 2]]);
  assert.deepEqual(search.countOpen(spans), [[0, 1], [1, 2], [4, 2], [5, 3], [6, 2], [8, 1], [10, 0]]);
  assert.deepEqual(search.countOpen([{ start: 3, end: 3 }]), []);
});

test("cells have the median of their trials, and count those without a value", () => {
  const at = (across, up, value) => ({ across, up, value });
  const cells = search.groupCells([at(0, 0, 3), at(0.1, 0.4, 1), at(1, 1, 7), at(0.9, 0.9, null), at(null, 0, 1)], 2, 2);
  assert.deepEqual(cells, [
    { column: 0, row: 0, without: 0, count: 2, median: 2 },
    { column: 1, row: 1, without: 1, count: 1, median: 7 },
  ]);
});
