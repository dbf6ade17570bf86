// @ts-check
/** Pure functions about curves: smoothing, ranges, nearest points, ticks, and their picture as SVG. */

/** @typedef {[number, number][]} Pairs Numbers mapped to others, both in ascending order. */
/** @typedef {{from: number, to: number, at: number, name: string}} Gap Part of a curve without numbers. It begins after the point at an index. */
/**
 * @typedef {object} Series
 * @property {number | string} id
 * @property {string} label
 * @property {string} [note] since when there are no numbers
 * @property {number[]} x steps, or their positions on another axis
 * @property {number[]} y
 * @property {[number, string][]} [gaps] steps at which the value is no finite number, with its name
 * @property {Pairs} [positions] positions of steps on another axis
 * @property {number} [rank]
 */
/** @typedef {Series & {raw: number[], gapsAt: Gap[]}} DrawnSeries Curve on the axis of a chart, smoothed. */
/** @typedef {{min: number, max: number}} Range */

export const RANKED = 10;
/** Half the size of the cross at the end of a curve after which there are no numbers, in pixels. */
export const CROSS = 4;
/** Dashes that distinguish the colours of the palette's second half, in pixels. */
export const DASHES = [[], [], [], [], [], [6, 3], [6, 3], [6, 3], [2, 3], [2, 3]];

/**
 * Smooth values by an exponential moving average without the bias of its start.
 * @param {number[]} values @param {number} weight 0 (none) to below 1
 * @returns {number[]}
 */
export function smooth(values, weight) {
  if (!weight) return values;
  let sum = 0;
  let share = 0;
  return values.map((value) => {
    sum = sum * weight + value * (1 - weight);
    share = share * weight + (1 - weight);
    return sum / share;
  });
}

/**
 * Find the positions of ascending numbers by linear interpolation. Beyond the ends, the nearest line goes on.
 * @param {number[]} numbers @param {Pairs} pairs @returns {number[]}
 */
export function interpolate(numbers, pairs) {
  if (pairs.length < 2) return pairs.length ? numbers.map(() => pairs[0][1]) : [];
  let right = 1;
  return numbers.map((number) => {
    while (right < pairs.length - 1 && pairs[right][0] < number) right++;
    const [[x0, y0], [x1, y1]] = [pairs[right - 1], pairs[right]];
    return x1 === x0 ? y1 : y0 + ((number - x0) / (x1 - x0)) * (y1 - y0);
  });
}

/** Unite pairs. Those of the newer ones count. @template T @param {[number, T][]} older @param {[number, T][]} newer @returns {[number, T][]} */
const unitePairs = (older, newer) => [...new Map([...older, ...newer])].sort((a, b) => a[0] - b[0]);

/**
 * Find the parts without numbers, given the ascending steps of points and those of other values.
 * @param {number[]} steps @param {[number, string][]} others @returns {Gap[]}
 */
export function findGaps(steps, others) {
  /** @type {Gap[]} */
  const found = [];
  let at = -1;
  for (const [step, name] of others) {
    while (at + 1 < steps.length && steps[at + 1] < step) at++;
    const last = found[found.length - 1];
    if (last && last.at === at && last.name === name) last.to = step;
    else found.push({ from: step, to: step, at, name });
  }
  return found;
}

/**
 * Place a curve on an axis, and smooth it.
 * @param {Series} curve @param {boolean} hasPositions whether the axis is another one than that of steps @param {number} weight
 * @returns {DrawnSeries}
 */
export function placeCurve(curve, hasPositions, weight) {
  const place = (/** @type {number[]} */ steps) => (hasPositions ? interpolate(steps, curve.positions ?? []) : steps);
  const gaps = findGaps(curve.x, curve.gaps ?? []);
  const [from, to] = [place(gaps.map((gap) => gap.from)), place(gaps.map((gap) => gap.to))];
  const gapsAt = from.map((start, i) => ({ ...gaps[i], from: start, to: to[i] }));
  const x = place(curve.x);
  return { ...curve, x, raw: x.length ? curve.y : [], y: x.length ? smooth(curve.y, weight) : [], gapsAt };
}

/**
 * Find the least and the greatest value of each of some intervals, if a part of a curve has more points than there is room for.
 * @param {DrawnSeries} curve @param {Range} part @param {number} most number of points for which there is room
 * @returns {{x: number[], y: number[], low: number[], high: number[]} | null} y is the mean of the smoothed values
 */
export function envelope({ x, y, raw }, { min, max }, most) {
  const begin = Math.max(nearestIndex(x, min) - 1, 0);
  const end = Math.min(nearestIndex(x, max) + 2, x.length);
  if (end - begin <= most) return null;
  const width = ((max - min) / most) * 2;
  /** @type {{x: number[], y: number[], low: number[], high: number[]}} */
  const found = { x: [], y: [], low: [], high: [] };
  for (let i = begin; i < end; ) {
    const interval = Math.floor((x[i] - min) / width);
    let [sum, low, high, j] = [0, Infinity, -Infinity, i];
    for (; j < end && Math.floor((x[j] - min) / width) === interval; j++) {
      sum += y[j];
      if (raw[j] < low) low = raw[j];
      if (raw[j] > high) high = raw[j];
    }
    found.x.push((x[i] + x[j - 1]) / 2);
    found.y.push(sum / (j - i));
    found.low.push(low);
    found.high.push(high);
    i = j;
  }
  return found;
}

/** Describe what a curve has at a position, or return "" beyond its ends. @param {DrawnSeries} curve @param {number} at @param {number} tolerance */
export function valueAt({ x, y, gapsAt }, at, tolerance) {
  const gap = gapsAt.find(({ from, to }) => at >= from - tolerance / 2 && at <= to + tolerance / 2);
  if (gap) return gap.name;
  if (!x.length || at < x[0] - tolerance || at > x[x.length - 1] + tolerance) return "";
  return format(y[nearestIndex(x, at)]);
}

const HOUR = 3600;
/** Distances between the ticks of durations, in seconds. */
export const DURATION_STEPS = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, ...[1, 2, 4, 6, 12, 24, 48, 96, 240, 1200].map((hours) => hours * HOUR)];
/** Units of time with their seconds. @type {[string, number][]} */
const DURATIONS = [["d", 24 * HOUR], ["h", HOUR], ["min", 60]];

/** Format seconds for people, in one unit. @param {number} seconds */
export function formatDuration(seconds) {
  const [unit, size] = DURATIONS.find(([, length]) => seconds >= length * 2) ?? ["s", 1];
  return `${format(Math.round((seconds / size) * 10) / 10)} ${unit}`;
}

/** Format a moment in the reader's zone, with the date if a span is longer than a day. @param {number} moment in seconds @param {number} span in seconds */
export function formatMoment(moment, span) {
  const time = new Date(moment * 1000);
  const clock = time.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", ...(span < 600 && { second: "2-digit" }) });
  return span > 86400 ? `${String(time.getMonth() + 1).padStart(2, "0")}-${String(time.getDate()).padStart(2, "0")} ${clock}` : clock;
}

/** Return the name of a curve, and since when it has no numbers. @param {Series} curve */
export const fullLabel = ({ label, note }) => (note ? `${label}, ${note}` : label);

/**
 * Replace the points of a curve after one step and until another.
 * @param {Series} curve @param {Series} part @param {number} after @param {number} until
 * @returns {Series}
 */
export function replacePart(curve, part, after, until) {
  const begin = curve.x.filter((x) => x <= after).length;
  const end = curve.x.filter((x) => x <= until).length;
  const beyond = (curve.gaps ?? []).filter(([x]) => x <= after || x > until);
  return {
    ...part,
    x: [...curve.x.slice(0, begin), ...part.x, ...curve.x.slice(end)],
    y: [...curve.y.slice(0, begin), ...part.y, ...curve.y.slice(end)],
    ...(part.gaps && { gaps: unitePairs(beyond, part.gaps) }),
    ...(part.positions && { positions: unitePairs(curve.positions ?? [], part.positions) }),
  };
}

/**
 * Find the range of numbers, with a margin. On a log scale only positive numbers count.
 * @param {Iterable<number>} numbers @param {boolean} log @param {number} margin share of the range
 * @returns {Range}
 */
export function findRange(numbers, log, margin) {
  let min = Infinity;
  let max = -Infinity;
  for (const number of numbers) {
    if (!Number.isFinite(number) || (log && number <= 0)) continue;
    if (number < min) min = number;
    if (number > max) max = number;
  }
  if (min > max) return log ? { min: 0.1, max: 1 } : { min: 0, max: 1 };
  if (log) {
    const grown = Math.max(max / min, 1.1) ** margin;
    return { min: min / grown, max: max * grown };
  }
  const spread = max - min || Math.abs(max) || 1;
  return { min: min - spread * margin, max: max + spread * margin };
}

/** Find the index of the number nearest to a value. @param {number[]} sorted @param {number} value */
export function nearestIndex(sorted, value) {
  let low = 0;
  let high = sorted.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low > 0 && value - sorted[low - 1] < sorted[low] - value ? low - 1 : low;
}

/** Choose round numbers within a range. @param {Range} range @param {number} count @param {boolean} [log] @returns {number[]} */
export function ticks({ min, max }, count, log = false) {
  if (log) {
    const found = [];
    for (let power = Math.ceil(Math.log10(min)); power <= Math.log10(max); power++) found.push(10 ** power);
    if (found.length >= 2) return found.length > count ? found.filter((_, i) => i % Math.ceil(found.length / count) === 0) : found;
  }
  const rough = (max - min || 1) / count;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * unit).find((size) => size >= rough) ?? unit;
  const found = [];
  for (let n = Math.ceil(min / step); n * step <= max + step * 1e-9; n++) found.push(n * step);
  return found;
}

/** Format a number for people. @param {number | null | undefined} value */
export function format(value) {
  if (value == null || Number.isNaN(value)) return "–";
  if (Number.isInteger(value) && Math.abs(value) < 1e7) return String(value).replace("-", "−");
  const text = value.toPrecision(4);
  return String(Number(text)).replace("-", "−");
}

const LONGEST_LABEL = 15;
/** @param {string} text */
const escape = (text) => text.replace(/[&<>"']/g, (one) => `&#${one.charCodeAt(0)};`);

/**
 * Draw curves as an SVG document.
 * @param {DrawnSeries[]} series best first @param {{title: string, xLabel: string, formatX: (x: number) => string, log: boolean, color: (rank: number | undefined) => string, foreground: string, background: string}} look
 */
export function toSvg(series, look) {
  const named = series.length > 1 ? series.filter((one) => one.rank !== undefined) : [];
  const [width, height, left, bottom, top, right] = [800, 420, 64, 44, 32, named.length ? 144 : 16];
  const x = findRange(series.flatMap((one) => [...one.x, ...one.gapsAt.map((gap) => gap.from)]), false, 0);
  const y = findRange(series.flatMap((one) => one.y), look.log, 0.05);
  const scaled = look.log ? Math.log10 : (/** @type {number} */ value) => value;
  const px = (/** @type {number} */ v) => left + ((v - x.min) / (x.max - x.min || 1)) * (width - left - right);
  const py = (/** @type {number} */ v) =>
    height - bottom - ((scaled(v) - scaled(y.min)) / (scaled(y.max) - scaled(y.min) || 1)) * (height - bottom - top);
  const crosses = (/** @type {DrawnSeries} */ { gapsAt, rank, y }) =>
    gapsAt.flatMap(({ from, at }) => {
      const value = y[Math.max(at, 0)];
      if (value === undefined || (look.log && value <= 0)) return [];
      return `<path d="M${px(from).toFixed(1)},${py(value).toFixed(1)}m-${CROSS}-${CROSS}l${2 * CROSS} ${2 * CROSS}m0-${2 * CROSS}l-${2 * CROSS} ${2 * CROSS}" stroke="${look.color(rank)}" stroke-width="2"/>`;
    }).join("");
  const lines = [...series].reverse().map((one) => {
    const begins = new Set([0, ...one.gapsAt.map(({ at }) => at + 1)]);
    let before = "";
    const points = one.x.flatMap((v, i) => {
      if (begins.has(i)) before = "M";
      if (look.log && one.y[i] <= 0) return [];
      const point = `${before}${px(v).toFixed(1)},${py(one.y[i]).toFixed(1)}`;
      before = "L";
      return [point];
    });
    const dash = DASHES[one.rank ?? 0].join(" ");
    return `<path d="${points.join("")}" fill="none" stroke="${look.color(one.rank)}" stroke-width="${one.rank === 0 ? 2.5 : 1.25}"${dash && ` stroke-dasharray="${dash}"`}><title>${escape(fullLabel(one))}</title></path>${points.length === 1 ? `<circle cx="${points[0].slice(1).replace(",", '" cy="')}" r="3" fill="${look.color(one.rank)}"/>` : ""}${crosses(one)}`;
  });
  const across = ticks(x, 8).map((v) => `<text x="${px(v)}" y="${height - bottom + 18}" text-anchor="middle">${escape(look.formatX(v))}</text><path d="M${px(v)} ${height - bottom}v5"/>`);
  const up = ticks(y, 6, look.log).map((v) => `<text x="${left - 8}" y="${py(v) + 4}" text-anchor="end">${format(v)}</text><path d="M${left} ${py(v)}h-5"/>`);
  const legend = named.map((one, i) => {
    const [y, dash] = [top + 8 + i * 18, DASHES[one.rank ?? 0].join(" ")];
    const label = one.label.length > LONGEST_LABEL ? `${one.label.slice(0, LONGEST_LABEL - 1)}…` : one.label;
    return `<path d="M${width - right + 12} ${y}h20" stroke="${look.color(one.rank)}" stroke-width="${i ? 1.25 : 2.5}"${dash && ` stroke-dasharray="${dash}"`}/><text x="${width - right + 38}" y="${y + 4}" fill="${look.foreground}">${escape(label)}</text>`;
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="${look.background}"/>
<g fill="${look.foreground}"><text x="${left}" y="20">${escape(look.title)}</text><text x="${width - right}" y="${height - 8}" text-anchor="end">${escape(look.xLabel)}</text>
<g stroke="${look.foreground}" stroke-width="0"><g stroke-width="1"><path d="M${left} ${top}V${height - bottom}H${width - right}" fill="none"/></g>${[...across, ...up].join("").replaceAll("<path ", '<path stroke-width="1" ')}</g></g>
${lines.join("\n")}
${legend.join("\n")}</svg>`;
}
