// @ts-check
/** Marks that tell by their shape how trials ended, in all pictures and tables of a search. */
import { svg } from "./svg.js";

/** Shapes around the origin, by the word for how a trial ended or what it does. @type {Record<string, string>} */
const SHAPES = {
  completed: "M-4 0A4 4 0 1 0 4 0A4 4 0 1 0-4 0Z",
  "stopped early": "M-4.5-3.5H4.5L0 4.5Z",
  rejected: "M0-5L5 0L0 5L-5 0Z",
  "ended itself": "M0-5L5 0L0 5L-5 0ZM-5 0H5",
  failed: "M-4-4L4 4M-4 4L4-4",
  canceled: "M-4-4H4V4H-4Z",
  running: "M-4 0A4 4 0 1 0 4 0A4 4 0 1 0-4 0ZM-1 0A1 1 0 1 0 1 0A1 1 0 1 0-1 0Z",
  paused: "M-2.5-4V4M2.5-4V4",
  waiting: "M-4 0H4",
  continued: "M-4-4L0 0L-4 4M0-4L4 0L0 4",
  restarted: "M0-4V4M-4 0H4",
};
const FILLED = ["completed", "stopped early"];
const OTHER = "M-4 0H4M-4 3H4";

/**
 * Make a mark.
 * @param {string} word how the trial ended @param {number} x @param {number} y @param {{rank?: number, title?: string, size?: number}} [look]
 */
export function mark(word, x, y, { rank, title, size = rank === 0 ? 1.5 : 1 } = {}) {
  const names = ["mark", FILLED.includes(word) ? "filled" : "", word === "failed" ? "bad" : "", rank === undefined ? "" : `ranked c${rank}`];
  const shape = svg("path", { class: names.filter(Boolean).join(" "), d: SHAPES[word] ?? OTHER, transform: `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${size})` });
  if (title) shape.append(svg("title", {}, title));
  return shape;
}

/** Make a mark within text, followed by its word. @param {string} word */
export function markedWord(word) {
  const [piece, picture] = [document.createElement("span"), svg("svg", { viewBox: "-6 -6 12 12", width: 12, height: 12, class: "marks", "aria-hidden": "true" })];
  picture.append(mark(word, 0, 0));
  piece.className = "marked";
  piece.append(picture, word);
  return piece;
}

/** Explain marks in a list. @param {HTMLElement} list @param {string[]} words one per mark */
export function explainMarks(list, words) {
  const counts = new Map(Object.keys(SHAPES).map((word) => [word, 0]));
  for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1);
  const items = [...counts].filter(([, count]) => count).map(([word, count]) => {
    const item = document.createElement("li");
    item.append(markedWord(word), ` ${count}`);
    return item;
  });
  list.replaceChildren(...items);
}
