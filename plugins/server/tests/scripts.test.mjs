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
  const series = [{ id: 1, label: `<script>"&'`, x: [1, 2], y: [1, 10], rank: 0 }, { id: 2, label: "b", x: [1], y: [-5] }];
  const look = { title: "<b>", xLabel: "batches", log: true, color: () => "red", foreground: "black", background: "white" };
  const svg = curves.toSvg(series, look);
  assert.ok(!svg.includes("<script") && !svg.includes("<b>"));
  assert.ok(!svg.includes("NaN") && !svg.includes("Infinity"));
  assert.ok(!svg.includes("<circle"), "what a log scale cannot show is left out");
  const point = curves.toSvg([{ id: 1, label: "trial 1", x: [3], y: [2] }], { ...look, log: false });
  assert.match(point, /<circle cx="[\d.]+" cy="[\d.]+"/);
  const ended = curves.toSvg([{ id: 1, label: "trial 1", note: "NaN since batch 3", x: [1, 2], y: [1, 2] }], { ...look, log: false });
  assert.match(ended, /<title>trial 1, NaN since batch 3<\/title><\/polyline><path d="M[\d.,]+m-4-4l8 8m0-8l-8 8"/);
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
