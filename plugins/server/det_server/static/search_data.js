// @ts-check
/** Pure functions about the trials of a search: the best so far, places that ran one trial at a time, and cells of two hyperparameters. */

/**
 * Return the best of the first values, for each of them, or null before the first number.
 * @param {(number | null)[]} values @param {boolean} smaller whether smaller values are better
 */
export function bestSoFar(values, smaller) {
  /** @type {number | null} */
  let best = null;
  return values.map((value) => {
    if (value !== null && (best === null || (smaller ? value < best : value > best))) best = value;
    return best;
  });
}

/**
 * Give each span the first lane that is free when it begins, in the order of their beginnings.
 * @template {{start: number, end: number}} T
 * @param {T[]} spans @returns {{span: T, lane: number}[]}
 */
export function packLanes(spans) {
  /** @type {number[]} */
  const ends = [];
  return [...spans].sort((a, b) => a.start - b.start).map((span) => {
    const free = ends.findIndex((end) => end <= span.start);
    const lane = free < 0 ? ends.length : free;
    ends[lane] = Math.max(span.end, span.start);
    return { span, lane };
  });
}

/**
 * Return when the number of open spans changes, with the number from then on.
 * @param {{start: number, end: number}[]} spans @returns {[number, number][]}
 */
export function countOpen(spans) {
  /** @type {Map<number, number>} */
  const changes = new Map();
  for (const { start, end } of spans.filter((one) => one.end > one.start)) {
    changes.set(start, (changes.get(start) ?? 0) + 1);
    changes.set(end, (changes.get(end) ?? 0) - 1);
  }
  let open = 0;
  return [...changes].sort(([a], [b]) => a - b).map(([at, change]) => [at, (open += change)]);
}

/** @param {number[]} sorted */
const median = (sorted) => (sorted[(sorted.length - 1) >> 1] + sorted[sorted.length >> 1]) / 2;

/**
 * Group trials by their places on two axes.
 * @param {{across: number | null, up: number | null, value: number | null}[]} trials places from 0 to 1
 * @param {number} columns @param {number} rows
 */
export function groupCells(trials, columns, rows) {
  /** @type {Map<string, {column: number, row: number, values: number[], without: number}>} */
  const cells = new Map();
  for (const { across, up, value } of trials) {
    if (across === null || up === null) continue;
    const [column, row] = [Math.min(Math.floor(across * columns), columns - 1), Math.min(Math.floor(up * rows), rows - 1)];
    const key = `${column} ${row}`;
    const cell = cells.get(key) ?? { column, row, values: [], without: 0 };
    cells.set(key, cell);
    if (value === null) cell.without += 1;
    else cell.values.push(value);
  }
  return [...cells.values()].map(({ values, ...cell }) => ({ ...cell, count: values.length, median: values.length ? median(values.sort((a, b) => a - b)) : null }));
}
