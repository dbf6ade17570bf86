// @ts-check
/** Legend of a chart with several curves, and the swatches that tables share with it. */

import { fullLabel } from "./curves.js";

/** @typedef {import("./curves.js").Series} Series */

/** Make a piece of the line of a rank, or of a curve without a rank. @param {number} [rank] */
export function swatch(rank) {
  const piece = document.createElement("i");
  piece.className = rank === undefined ? "swatch" : `swatch c${rank}`;
  return piece;
}

/** @param {string} text @param {number} [rank] */
function entry(text, rank) {
  const item = document.createElement("li");
  item.append(swatch(rank), text);
  return item;
}

/** Name the curves below the chart, those without a colour of their own together, unless there is nothing to say. @param {HTMLElement} figure @param {Series[]} curves */
export function showLegend(figure, curves) {
  const ranked = curves.filter((one) => one.rank !== undefined);
  const others = curves.filter((one) => one.rank === undefined);
  const ended = others.filter((one) => one.note).length;
  const entries = ranked.map((one) => entry(fullLabel(one), one.rank));
  if (others.length) entries.push(entry(`${others.length} more${ended ? `, ${ended} of which diverged` : ""}`));
  const legend = figure.querySelector(".legend") ?? document.createElement("ul");
  legend.className = "legend";
  legend.replaceChildren(...(curves.length > 1 || curves.some((one) => one.note) ? entries : []));
  figure.querySelector(".values")?.before(legend);
}
