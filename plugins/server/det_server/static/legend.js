// @ts-check
/** Legend of a chart with several curves, whose entries hide and emphasize them, and the swatches that tables share with it. */

import { fullLabel } from "./curves.js";

/** @typedef {import("./curves.js").Series} Series */

/** Id of the entry of all curves without a colour of their own. */
export const OTHERS = "others";

/** Return the id of the entry of a curve. @param {Series} curve */
export const entryOf = (curve) => (curve.rank === undefined ? OTHERS : String(curve.id));

/** Make a piece of the line of a rank, or of a curve without a rank. @param {number} [rank] */
export function swatch(rank) {
  const piece = document.createElement("i");
  piece.className = rank === undefined ? "swatch" : `swatch c${rank}`;
  return piece;
}

/**
 * Name the curves below a chart, those without a colour of their own together, unless there is nothing to say.
 * @param {HTMLElement} figure @param {Series[]} all @param {Set<string>} hidden ids of entries
 * @param {{hide: (ids: Set<string>) => void, emphasize: (id: string | null) => void}} then
 */
export function showLegend(figure, all, hidden, then) {
  const curves = all.filter((one) => one.x.length || one.note);
  const missing = all.length - curves.length;
  const ranked = curves.filter((one) => one.rank !== undefined);
  const others = curves.filter((one) => one.rank === undefined);
  const ended = others.filter((one) => one.note).length;
  const entries = ranked.map((one) => ({ id: entryOf(one), text: fullLabel(one), rank: one.rank }));
  if (others.length) entries.push({ id: OTHERS, text: `${others.length} more${ended ? `, ${ended} of which diverged` : ""}`, rank: undefined });
  const isUseful = all.length > 1 || curves.some((one) => one.note);
  const legend = /** @type {HTMLElement} */ (figure.querySelector(".legend") ?? document.createElement("ul"));
  const known = JSON.stringify([entries, missing]);
  if (legend.dataset.known !== known) {
    legend.dataset.known = known;
    legend.className = "legend";
    legend.replaceChildren(...(isUseful ? entries : []).map((one) => entry(one, then)));
    if (missing && curves.length) legend.append(Object.assign(document.createElement("li"), { textContent: `${missing} without values` }));
    figure.querySelector(".values")?.before(legend);
  }
  const ids = entries.map((one) => one.id);
  for (const button of legend.querySelectorAll("button")) {
    button.setAttribute("aria-pressed", String(!hidden.has(button.dataset.id ?? "")));
    button.onclick = (event) => then.hide(event.shiftKey ? only(button.dataset.id ?? "", ids, hidden) : toggled(hidden, button.dataset.id ?? ""));
  }
}

/** @param {{id: string, text: string, rank?: number}} one @param {{emphasize: (id: string | null) => void}} then */
function entry({ id, text, rank }, then) {
  const [item, button] = [document.createElement("li"), document.createElement("button")];
  button.type = "button";
  button.dataset.id = id;
  button.title = "Hide or show. With Shift: show only this";
  button.append(swatch(rank), text);
  for (const name of ["pointerenter", "focus"]) button.addEventListener(name, () => then.emphasize(id));
  for (const name of ["pointerleave", "blur"]) button.addEventListener(name, () => then.emphasize(null));
  item.append(button);
  return item;
}

/** @param {Set<string>} ids @param {string} id */
function toggled(ids, id) {
  const changed = new Set(ids);
  if (!changed.delete(id)) changed.add(id);
  return changed;
}

/** Hide all but one entry, or none if that is so already. @param {string} id @param {string[]} ids @param {Set<string>} hidden */
function only(id, ids, hidden) {
  const rest = ids.filter((one) => one !== id);
  return new Set(rest.every((one) => hidden.has(one)) && !hidden.has(id) ? [] : rest);
}
