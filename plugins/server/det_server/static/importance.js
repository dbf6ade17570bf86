// @ts-check
/** Importance of the hyperparameters of a search, which the server computes in the background. */

/** Milliseconds until the page asks again for what is being computed. */
const AGAIN_MS = 3000;
/** Share of the differences below which the forests explain too little. */
const LITTLE = 0.2;

/** @typedef {{state: string, trials: number, names: string[], least?: number, explained?: number, shares?: number[], errors?: number[]}} Answer */

/** @param {number} share */
const percent = (share) => `${Math.round(share * 100)} %`;

/** Sentences about an answer without importances, by its state. @type {Record<string, (answer: Answer) => string>} */
const REASONS = {
  computing: ({ trials }) => `The importance is being computed from ${trials} trials.`,
  failed: () => "The importance could not be computed. The log of the server says why.",
  few: ({ trials, least, names }) => (names.length ? `The importance needs ${least} trials that have ended with a value. There ${trials === 1 ? "is" : "are"} ${trials}.` : "No hyperparameter differs between trials."),
  missing: () => "The importance needs scikit-learn, which the server lacks. It comes with det-server[importance].",
};

/** Say how sure the importances are. @param {Answer} answer */
function describe({ trials, explained = 0 }) {
  const share = percent(Math.max(explained, 0));
  const meaning = explained < LITTLE ? " That is little, so these numbers say hardly anything yet." : "";
  return `From ${trials} trials that have ended. A random forest predicts ${share} of the differences in their order from the hyperparameters.${meaning}`;
}

/** @param {Answer} answer */
function rows({ names, shares = [], errors = [] }) {
  const order = names.map((_, i) => i).sort((a, b) => shares[b] - shares[a]);
  return order.map((i) => {
    const row = document.createElement("tr");
    const [name, value, error] = ["th", "td", "td"].map((kind) => document.createElement(kind));
    name.setAttribute("scope", "row");
    name.textContent = names[i];
    const bar = document.createElement("progress");
    bar.value = shares[i];
    bar.setAttribute("aria-label", `importance of ${names[i]}`);
    value.append(bar, ` ${percent(shares[i])}`);
    error.textContent = `± ${percent(errors[i])}`;
    [name, value, error].forEach((cell, k) => (cell.dataset.label = ["hyperparameter", "importance", "uncertainty"][k]));
    row.append(name, value, error);
    return row;
  });
}

/** Show the importances, as soon as they are known. @param {HTMLElement} section */
export async function showImportance(section) {
  const answer = await fetch(section.dataset.src ?? "").catch(() => null);
  if (!answer?.ok) return;
  /** @type {Answer} */
  const found = await answer.json();
  const [status, table] = [section.querySelector("[role=status]"), section.querySelector("table")];
  if (!status || !table) return;
  const isKnown = found.state === "known";
  status.textContent = isKnown ? describe(found) : REASONS[found.state]?.(found) ?? "";
  table.hidden = !isKnown;
  if (isKnown) table.querySelector("tbody")?.replaceChildren(...rows(found));
  if (found.state === "computing") setTimeout(() => void showImportance(section), AGAIN_MS);
}
