// @ts-check
/** Table that says in numbers what a chart shows. */
import { findGaps, findRange, format, fullLabel } from "./curves.js";

const COLUMNS = ["curve", "points", "first", "least", "greatest", "last", "NaN or infinite"];

/** Make a row whose first cell is its header. @param {string[]} texts @param {boolean} isHead */
function row(texts, isHead) {
  const tr = document.createElement("tr");
  for (const [i, text] of texts.entries()) {
    const cell = document.createElement(isHead || i === 0 ? "th" : "td");
    if (cell.tagName === "TH") cell.setAttribute("scope", isHead ? "col" : "row");
    if (i > 0) cell.className = "n";
    cell.textContent = text;
    tr.append(cell);
  }
  return tr;
}

/** Name the first steps without numbers. @param {import("./curves.js").Series} curve */
function gapsOf({ x, gaps = [] }) {
  const found = findGaps(x, gaps);
  const few = found.slice(0, 3).map(({ from, name }) => `${name} at ${format(from)}`);
  return few.join(", ") + (found.length > few.length ? `, and ${found.length - few.length} more` : "");
}

/**
 * Make a table with a row per curve, which scrolls on its own.
 * @param {import("./curves.js").Series[]} series @param {string} title
 */
export function tableOfValues(series, title) {
  const [table, head, body, box] = ["table", "thead", "tbody", "div"].map((name) => document.createElement(name));
  head.append(row(COLUMNS, true));
  for (const one of series.filter(({ x, gaps }) => x.length || gaps?.length)) {
    const [{ x, y }, { min, max }] = [one, findRange(one.y, false, 0)];
    const values = x.length ? [y[0], min, max, y[y.length - 1]] : [null, null, null, null];
    body.append(row([fullLabel(one), String(x.length), ...values.map(format), gapsOf(one)], false));
  }
  table.append(head, body);
  box.append(table);
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", `Values of ${title}`);
  return box;
}
