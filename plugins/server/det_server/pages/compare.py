"""Page that compares trials of any experiments."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from det_core.interfaces.records import MAX_STEPS
from det_server._refusal import RefusedError
from det_server._rendering import query_string, render_page
from det_server._site import site_of
from det_server._threads import Work, in_threads
from det_server.pages._axes import AXES, positions_on
from det_server.pages._comparison import MOST_TRIALS, Choice, Comparison, read_comparison
from det_server.pages._comparison_report import make_report
from det_server.pages._live_page import live
from det_server.pages._store_values import metric_of, parse_ids, parse_number, ranked_colors
from det_server.pages.code import MOST_CODES, code_differences

_MOST_NAMED = 1000
_LONGEST_NAME = 200


def show_compare(request: Request) -> Response:
    """Show the curves, the values and the differences of the trials that the URL names."""
    choice = read_choice(request)
    comparison = _read(request, choice)
    return render_page(
        request, "compare.html", **page_values(comparison, choice), only_differences=_wants_differences(request)
    )


def send_report(request: Request) -> Response:
    """Return the same as one HTML file to save, with the differences of the code."""
    store, choice, query = site_of(request).store, read_choice(request), request.query_params
    comparison = _read(request, choice)
    if not comparison.trials:
        raise RefusedError(404, "there are no such trials; expected some, such as ?trials=3,17")
    axis = query.get("axis", "")
    report = make_report(
        store,
        comparison,
        choice,
        code_differences(store, list(comparison.experiments)),
        only_differences=_wants_differences(request),
        axis=axis if axis in AXES else "batch",
        positions=positions_on(axis, store, comparison.trials, comparison.drawn.group, -1, MAX_STEPS)
        if axis in AXES
        else None,
        log=query.get("log") == "1",
    )
    headers = {"Content-Disposition": 'attachment; filename="comparison.html"'}
    return Response(report, media_type="text/html; charset=utf-8", headers=headers)


def read_choice(request: Request) -> Choice:
    """Return the trials and values that a URL names."""
    query = request.query_params
    step = parse_number(query.get("step", "").strip(), default=-1, most=MAX_STEPS)
    return Choice(
        trials=_ids(request, "trials"),
        experiments=_ids(request, "experiments"),
        best=max(parse_number(query.get("best", ""), default=1, most=MOST_TRIALS), 1),
        step=None if step < 0 else step,
        series=query.get("series", ""),
        names=query.get("names", "").strip()[:_LONGEST_NAME],
    )


def page_values(comparison: Comparison, choice: Choice) -> dict[str, Any]:
    """Return the values that the templates of a comparison use."""
    trials, drawn = comparison.trials, comparison.drawn
    ids = [trial.id for trial in trials]
    names = {"trials": ",".join(map(str, ids)), "group": drawn.group, "metric": drawn.metric}
    several = len(comparison.experiments) > 1
    return {
        "comparison": comparison,
        "trials": trials,
        "ids": names["trials"],
        "without": {one: ",".join(str(other) for other in ids if other != one) for one in ids},
        "choice": choice,
        "most_codes": MOST_CODES,
        "state": {"series": choice.series, "names": choice.names, "step": choice.step},
        "colors": ranked_colors(ids),
        "searched": {one.id: metric_of(one) for one in comparison.experiments.values()},
        "chart_title": f"{drawn.metric}, {drawn.group}",
        "chart_source": f"/data/curves{query_string({**names, 'experiments': '1' if several else ''})}",
    }


def _read(request: Request, choice: Choice) -> Comparison:
    store = site_of(request).store
    return read_comparison(store, choice, lambda trial_id: store.latest_runs(trial_id, limit=1))


def _ids(request: Request, name: str) -> list[int]:
    """Return the ids that all values of a name in the query have together."""
    words = ",".join(request.query_params.getlist(name)).replace(",", " ").split()
    return parse_ids(",".join(words), _MOST_NAMED)


def _wants_differences(request: Request) -> bool:
    return request.query_params.get("differ") == "1"


ROUTES = [
    Route("/compare", live(show_compare)),
    Route("/compare/report.html", in_threads(Work.CODE, send_report)),
]
