// @ts-check
/** State of charts and searches in the page's URL, so that a link shows what its sender saw. */

const AXES = ["batch", "epoch", "time", "clock"];
/** Names of the state that other views of the same page keep. Which direction is better depends on the metric. */
const KEPT = /^((log|smooth|axis|ranges|x|across|up)$|(zoom|y|hide)\.)/;

/** Change the query of the page's URL. @param {(query: URLSearchParams) => void} change */
export function changeUrl(change) {
  const url = new URL(location.href);
  change(url.searchParams);
  history.replaceState(null, "", url);
}

/** Read the horizontal axis of charts, whether they have a log scale, and the weight of their smoothing. */
export function switches() {
  const query = new URLSearchParams(location.search);
  const weight = Number(query.get("smooth"));
  const axis = query.get("axis") ?? "";
  return { axis: AXES.includes(axis) ? axis : AXES[0], log: query.get("log") === "1", weight: weight > 0 && weight < 1 ? weight : 0 };
}

/** @param {{axis: string, log: boolean, weight: number}} chosen */
export function setSwitches({ axis, log, weight }) {
  changeUrl((query) => {
    if (axis !== switches().axis) for (const name of [...query.keys()].filter((one) => one.startsWith("zoom."))) query.delete(name);
    axis === AXES[0] ? query.delete("axis") : query.set("axis", axis);
    log ? query.set("log", "1") : query.delete("log");
    weight ? query.set("smooth", String(weight)) : query.delete("smooth");
  });
}

/** Read the part of an axis that a chart shows, or null for all of it. An end that is not set is infinite. @param {"zoom" | "y"} axis @param {string} chart */
export function partOf(axis, chart) {
  const ends = (new URLSearchParams(location.search).get(`${axis}.${chart}`) ?? "~").split("~");
  const [min, max] = [ends[0] ? Number(ends[0]) : -Infinity, ends[1] ? Number(ends[1]) : Infinity];
  return min < max && max - min > 0 && ends.length === 2 && (min > -Infinity || max < Infinity) ? { min, max } : null;
}

/** @param {"zoom" | "y"} axis @param {string} chart @param {{min: number, max: number} | null} range */
export function setPart(axis, chart, range) {
  const ends = range && [range.min, range.max].map((end) => (Number.isFinite(end) ? Number(end.toPrecision(12)) : ""));
  changeUrl((query) => (ends ? query.set(`${axis}.${chart}`, ends.join("~")) : query.delete(`${axis}.${chart}`)));
}

/** Read the ids of the curves that a chart does not show. @param {string} chart */
export const hiddenOf = (chart) => new Set(new URLSearchParams(location.search).getAll(`hide.${chart}`));

/** @param {string} chart @param {Iterable<string>} ids */
export function setHidden(chart, ids) {
  changeUrl((query) => {
    query.delete(`hide.${chart}`);
    for (const id of ids) query.append(`hide.${chart}`, id);
  });
}

/** Copy the state of charts from the page's URL to another query of the same page. @param {URLSearchParams | FormData} query */
export function keepChartState(query) {
  const kept = [...new URLSearchParams(location.search)].filter(([name]) => KEPT.test(name) && !query.has(name));
  for (const [name, value] of kept) query.append(name, value);
}
