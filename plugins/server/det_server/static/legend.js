// @ts-check
/** Legend of a chart with several curves. */

/** @typedef {import("./curves.js").Series} Series */

/** @param {string} style @param {string} text */
function entry(style, text) {
  const item = document.createElement("li");
  const swatch = document.createElement("i");
  swatch.className = `swatch ${style}`;
  item.append(swatch, text);
  return item;
}

/** Name the curves below the chart, those without a colour of their own together. @param {HTMLElement} figure @param {Series[]} curves */
export function showLegend(figure, curves) {
  const ranked = curves.filter((one) => one.rank !== undefined);
  const others = curves.length - ranked.length;
  const entries = ranked.map((one) => entry(`c${one.rank}`, one.label));
  if (others) entries.push(entry("", `${others} more`));
  const legend = figure.querySelector(".legend") ?? document.createElement("ul");
  legend.className = "legend";
  legend.replaceChildren(...(curves.length > 1 ? entries : []));
  figure.querySelector(".values")?.before(legend);
}
