// @ts-check
/** Logs that follow. Lines arrive as pieces of plain text with names of style classes, and stay text. */
import { notify } from "./live.js";

const log = /** @type {HTMLElement | null} */ (document.querySelector(".log"));
/** Number of the last lines that stay on the page, unless the reader asks for earlier ones. */
const LINES = 5000;
/** Number of earlier lines that the reader gets at a time. */
const EARLIER_LINES = 500;

/** @typedef {{id: number, rank: string, kind: string, text: [string, string][]}} Line */

/** @param {Line} line */
function element(line) {
  const item = document.createElement("li");
  item.dataset.id = String(line.id);
  item.dataset.rank = line.rank;
  item.className = { stderr: "err", det: "det" }[line.kind] ?? "out";
  for (const [classes, text] of line.text) {
    const piece = document.createElement("span");
    piece.className = classes;
    piece.textContent = text;
    item.append(piece);
  }
  return item;
}

/** @param {HTMLElement} list @param {string} query @returns {Promise<{lines: Line[], more: boolean}>} */
async function fetchLines(list, query) {
  const answer = await fetch(`/data/logs/${list.dataset.trial}?${query}`);
  if (!answer.ok) throw new Error(answer.statusText);
  return answer.json();
}

/** @param {Element | null} item */
const idOf = (item) => /** @type {HTMLElement | null} */ (item)?.dataset.id ?? "0";

/** @param {HTMLElement} list */
function follow(list) {
  const controls = /** @type {HTMLFormElement} */ (document.querySelector(".log-controls"));
  const following = /** @type {HTMLInputElement} */ (controls.elements.namedItem("follow"));
  const earlier = /** @type {HTMLElement} */ (document.querySelector(".earlier-lines"));
  const button = /** @type {HTMLButtonElement} */ (earlier.querySelector("button"));
  let most = LINES;

  const toEnd = () => {
    if (following.checked) list.scrollTop = list.scrollHeight;
  };
  /** Append the lines after the last one that is shown. */
  const append = async () => {
    for (let more = true; more; ) {
      const found = await fetchLines(list, `after=${idOf(list.lastElementChild)}`);
      more = found.more;
      if (found.lines.length) document.querySelector(".no-lines")?.remove();
      list.append(...found.lines.map(element));
      for (; list.childElementCount > most; earlier.hidden = false) list.firstElementChild?.remove();
    }
  };
  /** Insert the lines before the first one that is shown, and scroll to the last of them. */
  const prepend = async () => {
    const found = await fetchLines(list, `before=${idOf(list.firstElementChild)}&limit=${EARLIER_LINES}`);
    following.checked = false;
    const height = list.scrollHeight;
    list.prepend(...found.lines.map(element));
    list.scrollTop = list.scrollHeight - height - list.clientHeight;
    most = Math.max(most, list.childElementCount);
    earlier.hidden = !found.more;
    if (earlier.hidden) list.focus();
  };

  controls.hidden = button.hidden = false;
  // scrolling up stops following, and scrolling to the end continues it
  list.addEventListener("scroll", () => (following.checked = list.scrollTop + list.clientHeight > list.scrollHeight - 24));
  following.addEventListener("change", toEnd);
  let queue = Promise.resolve();
  document.addEventListener("det:logs", () => (queue = queue.then(append).then(toEnd, () => undefined)));
  button.addEventListener("click", () => (queue = queue.then(prepend).catch((error) => notify(`Earlier lines could not be read: ${error.message}`))));
  toEnd();
}

if (log) follow(log);
