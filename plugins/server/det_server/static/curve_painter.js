// @ts-check
/** Drawing of curves on the canvas of a chart. */
import { CROSS, DASHES, RANKED } from "./curves.js";

/** @typedef {import("./curves.js").Series} Series */

/** @param {string} name */
export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Return the colour of a rank, or the one of curves without a rank. @param {number | undefined} rank */
export const color = (rank) => css(rank === undefined ? "--rest" : `--c${rank}`);

/**
 * Draw curves, the best one last.
 * @param {any} u the uPlot @param {Series[]} curves best first @param {number} active position of the emphasized curve @param {boolean} log
 */
export function drawCurves(u, curves, active, log) {
  const { ctx, bbox } = u;
  const x = u.scales.x;
  const y = u.scales.y;
  const scaled = log ? Math.log10 : (/** @type {number} */ value) => value;
  const bottom = scaled(y.min);
  const across = bbox.width / (x.max - x.min);
  const up = bbox.height / (scaled(y.max) - bottom);
  const ratio = devicePixelRatio || 1;
  const palette = [...Array(RANKED).keys()].map((rank) => color(rank));
  const rest = color(undefined);
  ctx.beginPath();
  ctx.rect(bbox.left - 4 * ratio, bbox.top - 4 * ratio, bbox.width + 8 * ratio, bbox.height + 8 * ratio);
  ctx.clip();
  ctx.lineJoin = "bevel"; // with the widths below, an eighth of the time of round joins and 1.25 pixels
  for (let k = curves.length - 1; k >= 0; k--) {
    const one = curves[k];
    const rank = one.rank;
    ctx.strokeStyle = rank === undefined ? rest : palette[rank];
    ctx.lineWidth = (k === active || (rank === 0 && curves.length > 1) ? 2.5 : rank === undefined ? 1 : 1.25) * ratio;
    ctx.setLineDash(DASHES[rank ?? 0].map((length) => length * ratio));
    ctx.beginPath();
    for (let i = 0; i < one.x.length; i++) {
      const value = one.y[i];
      if (log && value <= 0) continue;
      ctx.lineTo(bbox.left + (one.x[i] - x.min) * across, bbox.top + bbox.height - (scaled(value) - bottom) * up);
    }
    ctx.stroke();
    if (one.x.length === 1) drawPoint(u, one, 0, 3);
    if (one.note) drawCross(u, one);
  }
}

/** Mark the end of a curve after which there are no numbers. @param {any} u the uPlot @param {Series} curve */
function drawCross({ ctx, valToPos }, { x, y }) {
  const half = CROSS * (devicePixelRatio || 1);
  const left = valToPos(x[x.length - 1], "x", true);
  const top = valToPos(y[y.length - 1], "y", true);
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
 * @param {any} u the uPlot @param {Series} curve @param {number} index @param {number} radius in pixels
 */
export function drawPoint({ ctx, valToPos }, curve, index, radius) {
  ctx.setLineDash([]);
  ctx.fillStyle = color(curve.rank);
  ctx.beginPath();
  ctx.arc(valToPos(curve.x[index], "x", true), valToPos(curve.y[index], "y", true), radius * (devicePixelRatio || 1), 0, 2 * Math.PI);
  ctx.fill();
}
