// @ts-check
/** Pieces of the pictures that are SVG: elements, a frame with two axes, and files to save. */

/** @typedef {import("./axes.js").Axis} Axis */
/** @typedef {{width: number, height: number, left: number, right: number, top: number, bottom: number}} Box Size of a picture, and the distances of its frame from the edges. */

const SVG = "http://www.w3.org/2000/svg";
/** Distance of the places 0 and 1 from the frame. */
const INSET = 8;
/** Height of the strip for what has no value on the vertical axis. */
const STRIP = 24;
const KEPT_STYLES = ["stroke", "fill", "stroke-width", "stroke-dasharray", "opacity", "fill-opacity", "paint-order", "font-weight"];

/** @param {string} name @param {Record<string, string | number>} attributes @param {string} [text] */
export function svg(name, attributes, text) {
  const element = /** @type {SVGElement} */ (document.createElementNS(SVG, name));
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  if (text !== undefined) element.textContent = text;
  return element;
}

/** @param {string} text @param {number} most */
export const shortened = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** Empty a picture, and give it a size. @param {SVGElement} picture @param {number} width @param {number} height */
export function clear(picture, width, height) {
  picture.replaceChildren();
  picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
  picture.setAttribute("width", String(width));
  picture.setAttribute("height", String(height));
}

/**
 * Draw a frame with the ticks and the names of two axes. Ticks have room for their labels.
 * @param {SVGElement} picture @param {Box} box @param {Axis} across @param {Axis} up @param {boolean} hasStrip whether something has no value on the vertical axis
 * @returns {{x: (place: number) => number, y: (place: number | null) => number}} positions of places
 */
export function drawFrame(picture, box, across, up, hasStrip) {
  const { width, height, left, right, top, bottom } = box;
  const floor = height - bottom;
  const lowest = floor - INSET - (hasStrip ? STRIP : 0);
  const x = (/** @type {number} */ place) => left + INSET + place * (width - left - right - 2 * INSET);
  const y = (/** @type {number | null} */ place) => (place === null ? floor - STRIP / 2 : lowest - place * (lowest - top - INSET));
  picture.append(svg("path", { class: "axis", d: `M${left} ${top}V${floor}H${width - right}`, fill: "none" }));
  if (hasStrip) {
    picture.append(svg("path", { class: "strip", d: `M${left} ${floor - STRIP}H${width - right}` }));
    picture.append(svg("text", { class: "tick", x: left - 6, y: floor - STRIP / 2 + 4, "text-anchor": "end" }, "no value"));
  }
  let reached = -Infinity;
  for (const tick of across.ticks) {
    const [label, at] = [shortened(tick.label, 14), x(tick.place)];
    if (at - label.length * 3.2 < reached) continue;
    reached = at + label.length * 3.2 + 6;
    picture.append(svg("text", { class: "tick", x: at, y: floor + 16, "text-anchor": "middle" }, label));
  }
  for (const tick of up.ticks) picture.append(svg("text", { class: "tick", x: left - 6, y: y(tick.place) + 4, "text-anchor": "end" }, shortened(tick.label, 9)));
  picture.append(svg("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, shortened(across.name, 60)));
  picture.append(svg("text", { transform: `translate(12 ${(top + floor) / 2}) rotate(-90)`, "text-anchor": "middle" }, shortened(up.name, 40)));
  return { x, y };
}

/** Save a picture with its present colours. @param {SVGElement} picture @param {string} name */
export function savePicture(picture, name) {
  const copy = /** @type {SVGElement} */ (picture.cloneNode(true));
  const originals = picture.querySelectorAll("*");
  copy.querySelectorAll("*").forEach((element, i) => {
    const look = getComputedStyle(originals[i]);
    for (const style of KEPT_STYLES) element.setAttribute(style, look.getPropertyValue(style));
    element.removeAttribute("class");
  });
  copy.querySelectorAll("[visibility=hidden]").forEach((element) => element.remove());
  copy.setAttribute("xmlns", SVG);
  copy.setAttribute("font-family", "sans-serif");
  copy.setAttribute("font-size", "11");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([copy.outerHTML], { type: "image/svg+xml" }));
  link.download = `${name}.svg`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
