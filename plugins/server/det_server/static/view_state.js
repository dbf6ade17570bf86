// @ts-check
/** State of charts and searches in the page's URL, so that a link shows what its sender saw. */

/** Change the query of the page's URL. @param {(query: URLSearchParams) => void} change */
export function changeUrl(change) {
  const url = new URL(location.href);
  change(url.searchParams);
  history.replaceState(null, "", url);
}

/** Read whether charts have a log scale, and the weight of their smoothing. */
export function switches() {
  const query = new URLSearchParams(location.search);
  const weight = Number(query.get("smooth"));
  return { log: query.get("log") === "1", weight: weight > 0 && weight < 1 ? weight : 0 };
}

/** @param {boolean} log @param {number} weight */
export function setSwitches(log, weight) {
  changeUrl((query) => {
    log ? query.set("log", "1") : query.delete("log");
    weight ? query.set("smooth", String(weight)) : query.delete("smooth");
  });
}

/** Read the part of the horizontal axis that a chart shows, or null for all of it. @param {string} chart */
export function zoomOf(chart) {
  const [min, max, ...rest] = (new URLSearchParams(location.search).get(`zoom.${chart}`) ?? "").split("~").map(Number);
  return min < max && Number.isFinite(max - min) && !rest.length ? { min, max } : null;
}

/** @param {string} chart @param {{min: number, max: number} | null} range */
export function setZoom(chart, range) {
  const ends = range && [range.min, range.max].map((end) => Number(end.toPrecision(12)));
  changeUrl((query) => (ends ? query.set(`zoom.${chart}`, ends.join("~")) : query.delete(`zoom.${chart}`)));
}

/** Copy the state of charts from the page's URL to another query of the same page. @param {URLSearchParams | FormData} query */
export function keepChartState(query) {
  for (const [name, value] of new URLSearchParams(location.search)) {
    if (/^(log|smooth|zoom\..*)$/.test(name) && !query.has(name)) query.set(name, value);
  }
}
