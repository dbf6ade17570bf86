// @ts-check
/** Drawing of curves on the canvas of a chart. */
import { CROSS, DASHES, RANKED, envelope } from "./curves.js";

/** @typedef {import("./curves.js").DrawnSeries} DrawnSeries */

/** Width for which a point of a curve has room, in pixels. Of a curve with more, the least and greatest values are a band. */
const POINT_PX = 4;

/** @param {string} name */
export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Return the colour of a rank, or the one of curves without a rank. @param {number | undefined} rank */
export const color = (rank) => css(rank === undefined ? "--rest" : `--c${rank}`);

/**
 * Draw curves, the best one and then the emphasized ones last.
 * @param {any} u the uPlot @param {DrawnSeries[]} curves best first @param {(curve: DrawnSeries) => boolean | null} isActive whether a curve is emphasized, or null if none is @param {boolean} log
 */
export function drawCurves(u, curves, isActive, log) {
  const { ctx, bbox } = u;
  const x = u.scales.x;
  const ratio = devicePixelRatio || 1;
  const scaled = log ? Math.log10 : (/** @type {number} */ value) => value;
  const bottom = scaled(u.scales.y.min);
  const across = bbox.width / (x.max - x.min);
  const up = bbox.height / (scaled(u.scales.y.max) - bottom);
  const px = (/** @type {number} */ at) => bbox.left + (at - x.min) * across;
  const py = (/** @type {number} */ value) => bbox.top + bbox.height - (scaled(value) - bottom) * up;
  const palette = [...Array(RANKED).keys()].map((rank) => color(rank));
  const rest = color(undefined);
  ctx.beginPath();
  ctx.rect(bbox.left - 4 * ratio, bbox.top - 4 * ratio, bbox.width + 8 * ratio, bbox.height + 8 * ratio);
  ctx.clip();
  ctx.lineJoin = "bevel"; // with the widths below, an eighth of the time of round joins and 1.25 pixels
  const isLast = (/** @type {DrawnSeries} */ one) => Number(isActive(one) === true);
  for (const one of [...curves].reverse().sort((a, b) => isLast(a) - isLast(b))) {
    const { rank } = one;
    const active = isActive(one);
    const band = envelope(one, x, bbox.width / ratio / POINT_PX);
    ctx.strokeStyle = ctx.fillStyle = rank === undefined ? rest : palette[rank];
    ctx.globalAlpha = active === false ? 0.25 : 1;
    ctx.lineWidth = (active || (rank === 0 && curves.length > 1) ? 2.5 : rank === undefined ? 1 : 1.25) * ratio;
    ctx.setLineDash(DASHES[rank ?? 0].map((length) => length * ratio));
    if (band && (rank !== undefined || active)) {
      ctx.globalAlpha *= 0.2;
      ctx.beginPath();
      const least = log ? u.scales.y.min : -Infinity;
      band.x.forEach((at, i) => ctx.lineTo(px(at), py(Math.max(band.high[i], least))));
      for (let i = band.x.length - 1; i >= 0; i--) ctx.lineTo(px(band.x[i]), py(Math.max(band.low[i], least)));
      ctx.fill();
      ctx.globalAlpha *= 5;
    }
    ctx.beginPath();
    drawLine(ctx, band ?? one, one, px, (value) => (log && value <= 0 ? null : py(value)));
    ctx.stroke();
    if (one.x.length === 1) drawPoint(u, one, 0, 3);
    for (const gap of one.gapsAt) drawCross(ctx, px(gap.from), py(one.y[Math.max(gap.at, 0)]));
  }
  ctx.globalAlpha = 1;
}

/**
 * Draw a line that is interrupted where the curve has no numbers.
 * @param {any} ctx @param {{x: number[], y: number[]}} line @param {DrawnSeries} curve @param {(at: number) => number} px @param {(value: number) => number | null} py
 */
function drawLine(ctx, { x, y }, { gapsAt }, px, py) {
  let gap = 0;
  for (let i = 0; i < x.length; i++) {
    const top = py(y[i]);
    let begins = false;
    for (; gap < gapsAt.length && gapsAt[gap].from < x[i]; gap++) begins = true;
    if (top !== null) ctx[begins ? "moveTo" : "lineTo"](px(x[i]), top);
  }
}

/** Mark where numbers end. @param {any} ctx @param {number} left @param {number} top */
function drawCross(ctx, left, top) {
  if (!Number.isFinite(left + top)) return;
  const half = CROSS * (devicePixelRatio || 1);
  ctx.setLineDash([]);
  ctx.lineWidth = half / 2;
  ctx.beginPath();
  for (const side of [half, -half]) {
    ctx.moveTo(left - side, top - half);
    ctx.lineTo(left + side, top + half);
  }
  ctx.stroke();
}

/**
 * Draw a point of a curve.
 * @param {any} u the uPlot @param {DrawnSeries} curve @param {number} index @param {number} radius in pixels
 */
export function drawPoint({ ctx, valToPos }, curve, index, radius) {
  ctx.setLineDash([]);
  ctx.fillStyle = color(curve.rank);
  ctx.beginPath();
  ctx.arc(valToPos(curve.x[index], "x", true), valToPos(curve.y[index], "y", true), radius * (devicePixelRatio || 1), 0, 2 * Math.PI);
  ctx.fill();
}
