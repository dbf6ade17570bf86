// @ts-check
/** Behaviour of all pages: live updates, dialogs, times in the reader's zone, and forms that submit themselves. */
import { connect } from "./live.js";
import { keepChartState } from "./view_state.js";

/** Show times in the reader's zone. The server writes them in its own. @param {ParentNode} root */
function localTimes(root) {
  for (const time of root.querySelectorAll("time")) {
    const moment = new Date(time.dateTime);
    const two = (/** @type {number} */ n) => String(n).padStart(2, "0");
    const text = `${moment.getFullYear()}-${two(moment.getMonth() + 1)}-${two(moment.getDate())} ${two(moment.getHours())}:${two(moment.getMinutes())}`;
    if (!Number.isNaN(moment.getTime()) && time.textContent !== text) time.textContent = text;
  }
}

/** Ask in a dialog what the linked page would ask. Without scripts, the link opens that page. @param {HTMLAnchorElement} link */
async function openDialog(link) {
  const answer = await fetch(link.href);
  const form = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main form");
  if (!answer.ok || !form) return location.assign(link.href);
  const dialog = document.createElement("dialog");
  const heading = form.querySelector("h1");
  if (heading) {
    const smaller = document.createElement("h2");
    smaller.textContent = heading.textContent;
    smaller.id = "dialog-heading";
    heading.replaceWith(smaller);
    dialog.setAttribute("aria-labelledby", smaller.id);
  }
  dialog.append(document.adoptNode(form));
  dialog.querySelector("[data-close]")?.addEventListener("click", (event) => (event.preventDefault(), dialog.close()));
  dialog.addEventListener("close", () => (dialog.remove(), link.focus()));
  document.body.append(dialog);
  dialog.showModal();
}

document.addEventListener("click", (event) => {
  const link = event.target instanceof Element ? event.target.closest("a[data-dialog]") : null;
  if (!(link instanceof HTMLAnchorElement) || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  openDialog(link).catch(() => location.assign(link.href));
});
document.addEventListener("click", (event) => {
  // other views of the same page keep the state of its charts
  const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
  if (!(link instanceof HTMLAnchorElement) || link.origin + link.pathname !== location.origin + location.pathname || link.hash) return;
  const url = new URL(link.href);
  keepChartState(url.searchParams);
  link.href = url.href;
});
document.addEventListener("change", (event) => {
  const field = event.target;
  const submits = field instanceof HTMLSelectElement || field instanceof HTMLInputElement;
  if (submits && "submit" in field.dataset) field.form?.requestSubmit();
  if (submits && "all" in field.dataset) for (const box of field.form?.querySelectorAll("[type=checkbox][name]") ?? []) /** @type {HTMLInputElement} */ (box).checked = field.checked;
});
document.addEventListener("submit", (event) => {
  // empty fields of searches would only make their links longer
  if (!(event.target instanceof HTMLFormElement) || event.target.method !== "get") return;
  const form = event.target;
  const target = form.id === "compare" ? "/compare" : event.submitter?.getAttribute("formaction");
  if (target && ["/compare", "/compare/code"].includes(target)) {
    event.preventDefault();
    const picked = /** @type {HTMLInputElement[]} */ ([...form.querySelectorAll("input[name]:checked")]);
    location.assign(`${target}?${picked[0]?.name ?? "trials"}=${picked.map((box) => box.value).join(",")}`);
  }
});
document.addEventListener("formdata", (event) => {
  if (!(event.target instanceof HTMLFormElement) || event.target.method !== "get") return;
  for (const name of new Set(event.formData.keys())) {
    const filled = event.formData.getAll(name).filter((value) => value !== "");
    event.formData.delete(name);
    for (const value of filled) event.formData.append(name, value);
  }
  if (new URL(event.target.action, location.href).pathname === location.pathname) keepChartState(event.formData);
});
document.addEventListener("det:refreshed", () => localTimes(document));

localTimes(document);
const events = document.body.dataset.events;
if (events) connect(events);
