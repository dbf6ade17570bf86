// @ts-check
/** What a trial reported beside numbers, read after its page, because that takes longer. */
const slot = /** @type {HTMLElement | null} */ (document.getElementById("reported"));

if (slot) {
  const answer = await fetch(slot.dataset.src ?? "");
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const found = page.getElementById("media");
  if (answer.ok && found?.querySelector("[data-media]")) {
    slot.append(found);
    slot.hidden = false;
  }
}
