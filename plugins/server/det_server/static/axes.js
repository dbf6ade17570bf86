// @ts-check
/** Pure functions about the axes of a search: scales of numbers and of names, and choices of ranges. */
import { findRange, format, ticks } from "./curves.js";

/**
 * @typedef {object} Axis
 * @property {string} name
 * @property {string[] | null} names sorted names of an axis of text, or null for numbers
 * @property {(value: unknown) => number | null} place position of a value, 0 to 1
 * @property {(place: number) => number} value number at a position
 * @property {{place: number, label: string}[]} ticks
 * @property {[string, string]} ends labels of the places 0 and 1
 */

/** Names for which an axis has room. */
const MOST_NAMES = 12;

/**
 * Make an axis for values.
 * @param {string} name @param {unknown[]} values @param {boolean} log
 * @returns {Axis}
 */
export function makeAxis(name, values, log) {
  const numbers = /** @type {number[]} */ (values.filter((value) => typeof value === "number"));
  if (!numbers.length || values.some((value) => typeof value === "string")) {
    const names = [...new Set(values.filter((value) => value != null).map(String))].sort(compareNames);
    const place = (/** @type {unknown} */ value) => (value == null ? null : (names.indexOf(String(value)) + 0.5) / names.length);
    const few = names.length > MOST_NAMES ? [] : names;
    const ticks = few.map((one) => ({ place: /** @type {number} */ (place(one)), label: one }));
    return { name, names, place, value: (at) => at * names.length, ticks, ends: few.length ? ["", ""] : [names[0] ?? "", names[names.length - 1] ?? ""] };
  }
  const isLog = log && numbers.every((value) => value > 0);
  const { min, max } = findRange(numbers, isLog, 0);
  if (min === max) {
    const middle = (/** @type {unknown} */ value) => (typeof value === "number" ? 0.5 : null);
    return { name, names: null, place: middle, value: () => min, ticks: [{ place: 0.5, label: format(min) }], ends: ["", ""] };
  }
  const scaled = isLog ? Math.log10 : (/** @type {number} */ value) => value;
  const [low, spread] = [scaled(min), scaled(max) - scaled(min)];
  const place = (/** @type {unknown} */ value) => (typeof value === "number" ? (scaled(value) - low) / spread : null);
  const value = (/** @type {number} */ at) => (isLog ? 10 ** (low + at * spread) : low + at * spread);
  const inner = ticks({ min, max }, 5, isLog);
  return { name, names: null, place, value, ticks: inner.map((one) => ({ place: /** @type {number} */ (place(one)), label: format(one) })), ends: [format(min), format(max)] };
}

/** @param {string} a @param {string} b */
const compareNames = (a, b) => Number(a) - Number(b) || (a < b ? -1 : Number(a > b));

/** @typedef {Map<string, [number, number]>} Ranges Names of axes mapped to the least and greatest chosen value. */

/** Read ranges from a URL's value like `lr:0.001:0.1`. @param {string | null} text @returns {Ranges} */
export function parseRanges(text) {
  /** @type {Ranges} */
  const ranges = new Map();
  for (const part of (text ?? "").split("~").filter(Boolean)) {
    const [greatest, least, ...name] = part.split(":").reverse();
    const [low, high] = [least === "" ? -Infinity : Number(least), greatest === "" ? Infinity : Number(greatest)];
    if (name.length && !Number.isNaN(low) && !Number.isNaN(high)) ranges.set(name.reverse().join(":"), [low, high]);
  }
  return ranges;
}

/** @param {Ranges} ranges */
export function formatRanges(ranges) {
  const bound = (/** @type {number} */ value) => (Number.isFinite(value) ? String(Number(value.toPrecision(4))) : "");
  return [...ranges].map(([name, [low, high]]) => `${name}:${bound(low)}:${bound(high)}`).join("~");
}

/**
 * Whether a value is within a range. Names are within if their positions on the axis are.
 * @param {Axis} axis @param {unknown} value @param {[number, number]} range
 */
export function isWithin(axis, value, [low, high]) {
  if (value == null) return false;
  const number = axis.names ? axis.names.indexOf(String(value)) + 0.5 : Number(value);
  return number >= low && number <= high;
}
