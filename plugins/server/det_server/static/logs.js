// @ts-check
/** Logs that follow. Lines arrive as pieces of plain text with names of style classes, and stay text. */

const log = /** @type {HTMLElement | null} */ (document.querySelector(".log"));
const MOST_LINES = 5000;

/** @param {{rank: string, kind: string, text: [string, string][]}} line */
function element(line) {
  const item = document.createElement("li");
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

/** Append the lines after the last one that is shown. @param {HTMLElement} list */
async function append(list) {
  for (let more = true; more; ) {
    const answer = await fetch(`/data/logs/${list.dataset.trial}?after=${list.dataset.last}`);
    if (!answer.ok) return;
    const found = await answer.json();
    more = found.more;
    if (!found.lines.length) return;
    list.append(...found.lines.map(element));
    list.dataset.last = String(found.lines[found.lines.length - 1].id);
    while (list.childElementCount > MOST_LINES) list.firstElementChild?.remove();
    document.querySelector(".no-lines")?.remove();
  }
}

if (log) {
  const controls = /** @type {HTMLFormElement} */ (document.querySelector(".log-controls"));
  const follow = /** @type {HTMLInputElement} */ (controls.elements.namedItem("follow"));
  const toEnd = () => {
    if (follow.checked) log.scrollTop = log.scrollHeight;
  };
  controls.hidden = false;
  // scrolling up stops following, and scrolling to the end continues it
  log.addEventListener("wheel", () => setTimeout(() => (follow.checked = log.scrollTop + log.clientHeight > log.scrollHeight - 24), 100));
  follow.addEventListener("change", toEnd);
  let queue = Promise.resolve();
  document.addEventListener("det:logs", () => (queue = queue.then(() => append(log)).then(toEnd, () => undefined)));
  toEnd();
}
