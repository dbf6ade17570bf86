"""Command ``det experiment plot``, which draws the learning curves of all trials."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from det_core.cli.render.printing import print_json
from det_core.cli.render.records import format_hyperparameters, varying_hyperparameters
from det_core.errors import DetError
from det_core.extras import explain_missing_extra, has_extra
from det_core.interfaces.records import ExperimentRecord, TrialOrder, TrialResult, searcher_metric
from det_core.interfaces.tracking import TrackingStore
from det_core.text import format_count, format_value
from det_core.tracking import open_store
from det_core.tracking.printable import printable_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FORMATS = (".png", ".svg", ".pdf")
_GROUPS = ("validation", "training")
_POINTS = 1000
"""Maximum number of points of one curve, about the number of columns of a picture."""
_GREY_POINTS = 40_000
"""Maximum number of points of all grey curves of a panel together, unless each would have fewer than ``_FEWEST``."""
_FEWEST = 50
_NAMED = 10
"""Maximum number of trials with a colour and a line in the legend. These are the best ones."""
_OTHERS = "the others"
_MARKED = 20
"""Number of points below which a curve has a marker at each point."""
_DOT, _LONE_DOT = 3, 7
"""Sizes of the markers of a curve, and of a curve that is a single point."""
_LONGEST = 60
"""Maximum number of characters of a line in the legend, so that room is left for the curves."""
_LARGEST = 1e300
"""Largest absolute value that is drawn. Larger and infinite values have no point."""
_GREY = 7
"""Index of grey in the colours of tab10. Only trials without a line in the legend are grey."""

Curve = Sequence[tuple[int, float]]


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Set of axes for one metric of one group, with the curves of the best trials first."""

    group: str
    metric: str
    curves: Mapping[int, Curve]
    """Pairs of batch and value, by trial id. Trials without values are missing."""


def run_plot(args: argparse.Namespace) -> int:
    """Draw the curves of an experiment into a file.

    Raises:
        DetError: matplotlib is not installed, no metric can be drawn, or the file cannot be written.
    """
    target: Path = args.output or Path(f"experiment_{args.experiment_id}.png")
    if target.suffix.lower() not in _FORMATS:
        raise DetError(f"cannot draw {target}; expected a file name that ends in one of {', '.join(_FORMATS)}")
    if not has_extra("plot"):
        raise DetError(explain_missing_extra("plot"))
    with open_store() as store:
        experiment = store.experiment(args.experiment_id)
        results = store.trial_results(experiment.id, order=TrialOrder.BEST)
        panels = _panels(store, experiment, results, args.metrics, log=args.log)
    _draw(experiment, results, panels, target, log=args.log)
    drawn = len({trial for panel in panels for trial in panel.curves})
    if args.json:
        print_json({"id": experiment.id, "path": target.absolute(), "trials": drawn})
    else:
        print(f"The curves of {format_count(drawn, 'trial')} are in {target}")
    return 0


def _panels(
    store: TrackingStore,
    experiment: ExperimentRecord,
    results: Sequence[TrialResult],
    metrics: Sequence[str],
    *,
    log: bool,
) -> list[Panel]:
    """Return a panel for each metric and group in which a trial has a curve."""
    wanted = {group: metrics or _by_default(store, experiment, results, group) for group in _GROUPS}
    panels = [
        Panel(group=group, metric=metric, curves=_curves(store, results, group, metric, log=log))
        for group, names in wanted.items()
        for metric in names
    ]
    drawn = [panel for panel in panels if panel.curves]
    if not drawn:
        asked = f"no metric {' or '.join(metrics)}" if metrics else "no metrics"
        scale = " on a log scale, which needs positive values" if log else ""
        raise DetError(f"the trials of experiment {experiment.id} have reported {asked} that can be drawn{scale}")
    return drawn


def _curves(
    store: TrackingStore, results: Sequence[TrialResult], group: str, metric: str, *, log: bool
) -> dict[int, Curve]:
    trials = [result.trial.id for result in results]
    named, grey = trials[:_NAMED], trials[_NAMED:]
    few = max(_FEWEST, min(_POINTS, _GREY_POINTS // max(1, len(grey))))
    found = store.curves(named, metric, group=group, points=_POINTS)
    found |= store.curves(grey, metric, group=group, points=few)
    least = 0.0 if log else -math.inf
    drawable = {
        trial: [(step, value) for step, value in curve if value > least and abs(value) <= _LARGEST]
        for trial, curve in found.items()
    }
    return {trial: curve for trial, curve in drawable.items() if curve}


def _by_default(
    store: TrackingStore, experiment: ExperimentRecord, results: Sequence[TrialResult], group: str
) -> Sequence[str]:
    """Return the searcher's metric or the reported metric with the most similar name. For training, prefer the loss."""
    searched, _ = searcher_metric(experiment.config)
    first = (next(iter(store.metrics(result.trial.id, group=group)), None) for result in results)
    reported = next((report.metrics for report in first if report), {})
    numbers = [name for name, value in reported.items() if isinstance(value, (int, float))]
    plain = searched.removeprefix("validation_").removeprefix("val_")
    likely = (searched, plain, "loss") if group == "validation" else ("loss", plain)
    return [next((name for name in likely if name in numbers), *numbers[:1])] if numbers else []


def _draw(
    experiment: ExperimentRecord, results: Sequence[TrialResult], panels: Sequence[Panel], target: Path, *, log: bool
) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5 * len(panels) + 3, 4.5), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    names = _names(results)
    for panel, drawn in zip(panels, axes, strict=True):
        _draw_panel(drawn, panel, names, log=log)
    handles = {
        label: handle for drawn in axes for handle, label in zip(*drawn.get_legend_handles_labels(), strict=True)
    }
    shown = [name for name in (*names.values(), _OTHERS) if name in handles]
    legend = figure.legend(
        [handles[name] for name in shown], shown, loc="outside right upper", fontsize="small", title="best first"
    )
    for words in legend.get_texts():
        words.set_parse_math(False)
    figure.suptitle(f"Experiment {experiment.id}: {printable_text(experiment.name)}", parse_math=False)
    try:
        figure.savefig(target, dpi=150)
    except OSError as error:
        raise DetError(f"{target} cannot be written: {error.strerror}") from error


def _draw_panel(axes: Axes, panel: Panel, names: Mapping[int, str], *, log: bool) -> None:
    from matplotlib import colormaps
    from matplotlib.collections import LineCollection
    from matplotlib.ticker import MaxNLocator

    colours = [colour for number, colour in enumerate(map(colormaps["tab10"], range(10))) if number != _GREY]
    styles: dict[int, dict[str, Any]] = {
        trial: {"color": colours[rank % len(colours)], "linewidth": 1.2, "alpha": 0.8}
        for rank, trial in enumerate(names, -1)
    }
    if len(panel.curves) > 1:
        styles |= {trial: {"color": "black", "linewidth": 2.5} for trial in [*names][:1]}
    named = [trial for trial in names if trial in panel.curves]
    grey = [curve for trial, curve in panel.curves.items() if trial not in names]
    if grey:  # drawn as two artists, because an artist for each curve takes seconds
        axes.add_collection(LineCollection(grey, colors="0.6", linewidths=0.6, alpha=0.5, label=_OTHERS))
        points = [point for curve in grey if len(curve) < _MARKED for point in curve]
        axes.plot(
            [step for step, _ in points], [value for _, value in points], "o", color="0.6", alpha=0.5, markersize=_DOT
        )
    for rank, trial in enumerate(named):
        curve = panel.curves[trial]
        marker = "o" if len(curve) < _MARKED else None
        axes.plot(
            *zip(*curve, strict=True),
            **styles[trial],
            marker=marker,
            markersize=_DOT if len(curve) > 1 else _LONE_DOT,
            zorder=1000 - rank,
            label=names[trial],
        )
    axes.set_xlabel("batches trained")
    axes.xaxis.set_major_locator(MaxNLocator(nbins="auto", integer=True))
    axes.set_ylabel(f"{printable_text(panel.metric)} ({panel.group}{', log scale' if log else ''})", parse_math=False)
    if log:
        axes.set_yscale("log")
    axes.grid(alpha=0.3)


def _names(results: Sequence[TrialResult]) -> dict[int, str]:
    """Return the names of the best trials for the legend, by trial id."""
    varied = varying_hyperparameters(results)
    names = {}
    for result in results[:_NAMED]:
        value = f"{format_value(result.best.value)}  " if result.best else ""
        name = f"{value}trial {result.trial.id}  {format_hyperparameters(result.trial, varied, 3)}".rstrip()
        names[result.trial.id] = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
    return names
