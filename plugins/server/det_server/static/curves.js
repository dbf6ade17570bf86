// @ts-check
/** Pure functions about curves: smoothing, ranges, nearest points, ticks, and their picture as SVG. */

/** @typedef {{id: number | string, label: string, note?: string, x: number[], y: number[], rank?: number}} Series A note says since when there are no numbers. */
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
  return { ...part, x: [...curve.x.slice(0, begin), ...part.x, ...curve.x.slice(end)], y: [...curve.y.slice(0, begin), ...part.y, ...curve.y.slice(end)] };
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
 * @param {Series[]} series best first @param {{title: string, xLabel: string, log: boolean, color: (rank: number | undefined) => string, foreground: string, background: string}} look
 */
export function toSvg(series, look) {
  const named = series.length > 1 ? series.filter((one) => one.rank !== undefined) : [];
  const [width, height, left, bottom, top, right] = [800, 420, 64, 44, 32, named.length ? 144 : 16];
  const x = findRange(series.flatMap((one) => one.x), false, 0);
  const y = findRange(series.flatMap((one) => one.y), look.log, 0.05);
  const scaled = look.log ? Math.log10 : (/** @type {number} */ value) => value;
  const px = (/** @type {number} */ v) => left + ((v - x.min) / (x.max - x.min || 1)) * (width - left - right);
  const py = (/** @type {number} */ v) =>
    height - bottom - ((scaled(v) - scaled(y.min)) / (scaled(y.max) - scaled(y.min) || 1)) * (height - bottom - top);
  const cross = (/** @type {Series} */ { note, rank }, /** @type {string[]} */ points) =>
    note && points.length ? `<path d="M${points[points.length - 1]}m-${CROSS}-${CROSS}l${2 * CROSS} ${2 * CROSS}m0-${2 * CROSS}l-${2 * CROSS} ${2 * CROSS}" stroke="${look.color(rank)}" stroke-width="2"/>` : "";
  const lines = [...series].reverse().map((one) => {
    const points = one.x.flatMap((v, i) => (look.log && one.y[i] <= 0 ? [] : [`${px(v).toFixed(1)},${py(one.y[i]).toFixed(1)}`]));
    const dash = DASHES[one.rank ?? 0].join(" ");
    return `<polyline points="${points.join(" ")}" fill="none" stroke="${look.color(one.rank)}" stroke-width="${one.rank === 0 ? 2.5 : 1.25}"${dash && ` stroke-dasharray="${dash}"`}><title>${escape(fullLabel(one))}</title></polyline>${points.length === 1 ? `<circle cx="${points[0].replace(",", '" cy="')}" r="3" fill="${look.color(one.rank)}"/>` : ""}${cross(one, points)}`;
  });
  const across = ticks(x, 8).map((v) => `<text x="${px(v)}" y="${height - bottom + 18}" text-anchor="middle">${format(v)}</text><path d="M${px(v)} ${height - bottom}v5"/>`);
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
