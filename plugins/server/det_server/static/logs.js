// @ts-check
/** Logs that follow. Lines arrive as pieces of plain text with names of style classes, and stay text. */
import { notify, withRetries } from "./live.js";
import { changeUrl } from "./view_state.js";

const log = /** @type {HTMLElement | null} */ (document.querySelector(".log"));
/** Number of the last lines that stay on the page while it follows. Of one who reads earlier lines, twice as many. */
const LINES = 5000;
/** Number of lines that the reader gets at a time. */
const SOME_LINES = 500;
const FILTERS = ["rank", "stdtype", "level", "search"];

/** @typedef {{id: number, time: string, source: string, level: string, text: [string, string][]}} Line */
/** @typedef {{lines: Line[], more: boolean, after: number, before: number}} Lines */

/** Show the time of a line in the reader's zone. @param {HTMLElement} item */
function stamp(item) {
  const { time = "", source, level } = item.dataset;
  const [day, at] = new Date(time).toLocaleString("sv").split(" ");
  item.dataset.at = at;
  item.title = [`${day} ${at}`, source === "det" ? "det" : `rank ${source}`, level].filter(Boolean).join(", ");
  return item;
}

/** @param {Line} line */
function element({ id, text, ...about }) {
  const item = document.createElement("li");
  Object.assign(item.dataset, about, { id });
  for (const [classes, part] of text) {
    const piece = document.createElement("span");
    piece.className = classes;
    piece.textContent = part;
    item.append(piece);
  }
  return stamp(item);
}

/** @param {HTMLElement} list */
function follow(list) {
  const form = /** @type {HTMLFormElement} */ (document.querySelector(".log-controls"));
  const following = /** @type {HTMLInputElement} */ (document.getElementById("follow"));
  const earlier = /** @type {HTMLElement} */ (document.querySelector(".earlier-lines"));
  const button = /** @type {HTMLButtonElement} */ (earlier.querySelector("button"));
  const jump = /** @type {HTMLButtonElement} */ (document.querySelector(".log-end button"));
  const none = /** @type {HTMLElement} */ (document.querySelector(".no-lines"));
  /** Whether there are lines at the end that the page does not have. */
  let isBehind = false;

  const filters = () => {
    const data = new FormData(form);
    return new URLSearchParams(FILTERS.map((name) => [name, String(data.get(name) ?? "").trim()]).filter(([, value]) => value));
  };
  /** @param {Record<string, unknown>} part @returns {Promise<Lines>} */
  const fetchLines = async (part) => {
    const query = filters();
    for (const [name, value] of Object.entries(part)) query.set(name, String(value));
    const answer = await fetch(`/data/logs/${list.dataset.trial}?${query}`);
    if (!answer.ok) throw new Error(answer.statusText);
    return answer.json();
  };
  /** Follow or not, and show the way back to the end. @param {boolean} follows */
  const setFollowing = (follows) => {
    following.checked = follows;
    jump.hidden = follows;
    jump.textContent = isBehind ? "New lines: jump to the end" : "Jump to the end";
  };
  const toEnd = () => {
    if (following.checked) list.scrollTop = list.scrollHeight;
  };
  /** Append the lines after the last one that was read. The text does not move for one who reads earlier lines. */
  const append = async () => {
    for (let more = true; more; ) {
      const isFull = !following.checked && list.childElementCount >= 2 * LINES;
      isBehind = isFull || (isBehind && !following.checked);
      if (isFull) break;
      const found = await fetchLines({ after: list.dataset.after });
      more = found.more;
      list.dataset.after = String(found.after);
      none.hidden ||= found.lines.length > 0;
      list.append(...found.lines.map(element));
      isBehind ||= !following.checked && found.lines.length > 0;
      for (; following.checked && list.childElementCount > LINES; earlier.hidden = false) {
        list.firstElementChild?.remove();
        list.dataset.before = /** @type {HTMLElement} */ (list.firstElementChild).dataset.id;
      }
    }
    setFollowing(following.checked);
    toEnd();
  };
  /** Insert the lines before the first one that was read, and scroll to the last of them. */
  const prepend = async () => {
    const found = await fetchLines({ before: list.dataset.before, limit: SOME_LINES });
    const height = list.scrollHeight;
    list.dataset.before = String(found.before);
    list.prepend(...found.lines.map(element));
    none.hidden ||= found.lines.length > 0;
    setFollowing(false);
    list.scrollTop = list.scrollHeight - height - list.clientHeight;
    earlier.hidden = !found.more;
    if (earlier.hidden) list.focus();
  };
  /** Show the last lines that match the filter. */
  const showLast = async () => {
    const found = await fetchLines({ before: 0, limit: SOME_LINES });
    Object.assign(list.dataset, { after: found.after, before: found.before });
    list.replaceChildren(...found.lines.map(element));
    none.hidden = found.lines.length > 0;
    none.textContent = `No line matches this filter${found.more ? " so far. Earlier lines continues the search" : ""}.`;
    earlier.hidden = !found.more;
    isBehind = false;
    setFollowing(true);
    toEnd();
  };
  const filter = () => {
    const query = filters();
    changeUrl((url) => FILTERS.forEach((name) => (query.has(name) ? url.set(name, query.get(name) ?? "") : url.delete(name))));
    const file = /** @type {HTMLAnchorElement} */ (document.getElementById("log-file"));
    file.href = `/trials/${list.dataset.trial}/logs.txt?${query}`;
    return showLast();
  };

  let queue = Promise.resolve();
  /** Do one thing after the other. @param {() => Promise<void>} step @param {string} what */
  const then = (step, what) => (queue = queue.then(step).catch((error) => notify(`${what} could not be read: ${error.message}`)));
  const readNew = withRetries(() => {
    const reading = queue.then(append);
    queue = reading.catch(() => undefined);
    return reading;
  });
  button.hidden = following.closest("label").hidden = false;
  list.querySelectorAll("li").forEach((item) => stamp(item));
  // scrolling up stops following, and scrolling to the end continues it
  list.addEventListener("scroll", () => {
    const isAtEnd = list.scrollTop + list.clientHeight > list.scrollHeight - 24;
    if (isAtEnd && isBehind) isBehind = list.childElementCount >= 2 * LINES;
    if (isAtEnd !== following.checked) setFollowing(isAtEnd);
  });
  following.addEventListener("change", () => (following.checked ? then(showLast, "The last lines") : setFollowing(false)));
  jump.addEventListener("click", () => then(showLast, "The last lines"));
  form.addEventListener("change", (event) => event.target !== following && then(filter, "Lines"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    event.stopPropagation();
    then(filter, "Lines");
  });
  for (const event of ["det:logs", "det:reload"]) document.addEventListener(event, readNew);
  button.addEventListener("click", () => then(prepend, "Earlier lines"));
  toEnd();
}

if (log) follow(log);
