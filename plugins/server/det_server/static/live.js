// @ts-check
/**
 * Live updates. Values are written into the elements whose `data-live` names them, and nothing else moves.
 *
 * The connection is closed while the page is hidden, because a browser has only six per server.
 */

/** Milliseconds until a read that failed is repeated, and how often. */
const RETRY_MS = 5000;
const RETRIES = 5;
/** Milliseconds until the page looks again at a checkpoint that is being saved. */
const SAVING_MS = 2000;

/** @typedef {Record<string, Record<string, string>>} Rows Keys of rows mapped to names and texts of values. */

/** @param {string} key @param {string} name @returns {NodeListOf<HTMLElement>} */
function places(key, name) {
  return document.querySelectorAll(`[data-live="${CSS.escape(key + "/" + name)}"]`);
}

/** Write the values of rows into the page. @param {Rows} rows */
export function showRows(rows) {
  for (const [key, values] of Object.entries(rows)) {
    for (const [name, value] of Object.entries(values)) {
      for (const place of places(key, name)) {
        if (name === "state") {
          place.dataset.state = value;
          place.textContent = values.state_word;
        } else if (place instanceof HTMLProgressElement) place.value = Number(value);
        else if (place.textContent !== value) place.textContent = value;
      }
    }
    noteChanges(key, values);
  }
  document.dispatchEvent(new CustomEvent("det:rows", { detail: rows }));
}

/** Refresh the regions that depend on values other than those they were made from. @param {string} key @param {Record<string, string>} values */
function noteChanges(key, values) {
  for (const region of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(`[data-refresh-on="${CSS.escape(key)}"]`))) {
    const known = JSON.parse(region.dataset.known ?? "{}");
    const names = (region.dataset.refreshNames ?? "").split(" ");
    if (names.some((name) => name in values && name in known && known[name] !== values[name])) refreshSoon(region.id);
    region.dataset.known = JSON.stringify({ ...known, ...values });
  }
}

/** Return a function that reads what an event is about, and again if that fails, because no event is repeated. @param {() => Promise<unknown>} read */
export function withRetries(read) {
  let waiting = 0;
  const attempt = (left = RETRIES) => {
    read().catch(() => {
      window.clearTimeout(waiting); // one retry for all that have failed
      if (left) waiting = window.setTimeout(() => attempt(left - 1), RETRY_MS);
    });
  };
  return () => attempt();
}

/** @type {Set<string>} */
const outdated = new Set();
let waiting = 0;
/** Fetch the page again soon, once for all reasons that come together, and replace regions. @param {...string} ids */
export function refreshSoon(...ids) {
  for (const id of ids) outdated.add(id);
  waiting ||= window.setTimeout(() => ((waiting = 0), refresh()), 300);
}

/** Replace the outdated regions of the page by those of a fresh copy. One that the reader is using waits until it is free. */
const refresh = withRetries(async () => {
  if (![...outdated].some(isFree)) return;
  const answer = await fetch(location.href);
  if (!answer.ok) throw new Error(answer.statusText);
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (regions(fresh).join() !== regions().join()) {
    if (!isEdited()) location.reload();
    else notify("There is more on this page. It appears when what you have typed is saved or taken back.");
    return;
  }
  if (outdated.has("trials")) followTable(fresh);
  for (const id of [...outdated].filter(isFree)) {
    outdated.delete(id);
    const [region, newer] = [document.getElementById(id), fresh.getElementById(id)];
    if (!region || !newer || !isOther(region, newer)) continue;
    const folds = /** @type {NodeListOf<HTMLDetailsElement>} */ (region.querySelectorAll("details:not(.range)"));
    const kept = [...folds].map((one) => /** @type {const} */ ([one.closest("[id]")?.id ?? "", one.open]));
    region.replaceChildren(...newer.childNodes);
    for (const [id, isOpen] of kept) document.getElementById(id)?.querySelector("details")?.toggleAttribute("open", isOpen);
    Object.assign(region.dataset, newer.dataset);
  }
  if (fresh.body.dataset.events && fresh.body.dataset.events !== document.body.dataset.events) {
    document.body.dataset.events = fresh.body.dataset.events;
    source?.close();
    open();
  }
  document.dispatchEvent(new CustomEvent("det:refreshed"));
  watchSaving();
});

let watching = 0;
/** Look again at a checkpoint that is being saved. No event says that it is complete if an older one is deleted at once. */
function watchSaving() {
  const isSaving = ["#head", "#checkpoints"].every((region) => document.querySelector(`${region} [data-state=ACTIVE]`));
  if (isSaving && !document.hidden) watching ||= window.setTimeout(() => ((watching = 0), refreshSoon("checkpoints")), SAVING_MS);
}

/** Whether the reader neither selects nor types anything in a region. @param {string} id */
function isFree(id) {
  const region = document.getElementById(id);
  const selection = document.getSelection();
  const selects = selection && !selection.isCollapsed && region && selection.containsNode(region, true);
  return !region || !(selects || region.contains(document.activeElement) || region.querySelector("input:checked"));
}

/** Whether a reload would lose what the reader has typed or is asked. */
function isEdited() {
  // the state of other controls is in the URL
  const fields = /** @type {NodeListOf<HTMLInputElement>} */ (document.querySelectorAll("main form:not(.ranges) :is(textarea, input:not([type=range]))"));
  return [...fields].some((one) => one.value !== one.defaultValue) || document.querySelector("dialog[open]") !== null;
}

/** Let the charts ask for the trials of the fresh table, so that they are the same and have the same colours. @param {Document} fresh */
function followTable(fresh) {
  for (const part of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(".chart[id], [data-names-src]"))) {
    const { src, namesSrc } = fresh.getElementById(part.id)?.dataset ?? {};
    Object.assign(part.dataset, src && { src }, namesSrc && { namesSrc });
  }
}

/** Whether a region must be replaced. Charts are not, unless they have other names. @param {HTMLElement} region @param {HTMLElement} newer */
const isOther = (region, newer) => (region.dataset.names ? region.dataset.names !== newer.dataset.names : region.innerHTML !== newer.innerHTML);

/** Ids of the regions that are replaced when they are outdated. @param {Document} [page] */
const regions = (page = document) => [...page.querySelectorAll("[data-refresh]")].map((region) => region.id);

/** @type {EventSource | null} */
let source = null;
let cursor = document.body.dataset.cursor ?? "";

function open() {
  const after = cursor && `&after=${encodeURIComponent(cursor)}`;
  source = new EventSource(document.body.dataset.events + after);
  source.addEventListener("rows", (event) => showRows(JSON.parse(event.data)));
  source.addEventListener("reload", () => {
    refreshSoon(...regions());
    document.dispatchEvent(new CustomEvent("det:reload"));
  });
  for (const name of ["metrics", "system_metrics", "logs", "checkpoints"]) {
    source.addEventListener(name, (event) => {
      cursor = event.lastEventId || cursor;
      document.dispatchEvent(new CustomEvent(`det:${name}`, { detail: new Set(JSON.parse(event.data)) }));
      if (name === "checkpoints") refreshSoon("checkpoints");
    });
  }
  source.addEventListener("open", () => notify(""));
  watchSaving();
  source.addEventListener("error", () => {
    notify("The server does not answer. This page continues when it is back.");
    if (source?.readyState === EventSource.CLOSED) window.setTimeout(open, 5000);
  });
}

/** Show a line at the bottom of the page, or hide it. @param {string} text */
export function notify(text) {
  const notice = /** @type {HTMLElement} */ (document.querySelector(".notice"));
  notice.textContent = text;
  notice.hidden = !text;
}

/** Follow the events at a URL while the page is visible. @param {string} url */
export function connect(url) {
  document.body.dataset.events = url;
  document.addEventListener("visibilitychange", () => {
    source?.close();
    source = null;
    if (!document.hidden) open();
  });
  window.addEventListener("pagehide", () => source?.close());
  for (const name of ["focusout", "change", "selectionchange"]) {
    document.addEventListener(name, () => outdated.size && refreshSoon());
  }
  if (!document.hidden) open();
}
