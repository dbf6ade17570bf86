"""Live display of an experiment: a progress bar in terminals and notebooks, and a line per validation."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import product
from numbers import Real
from typing import TYPE_CHECKING, Any

from det_core.core._notebook_panel import NotebookPanel
from det_core.core._progress_line import format_metric
from det_core.core._python_session import in_notebook
from det_core.extras import explain_missing_extra, has_extra
from det_core.interfaces.records import MetricsReport
from det_core.tracking import open_store

if TYPE_CHECKING:
    from det_core.config import ExperimentConfig

_POLL_SECONDS = 0.5
"""Polling interval of the tracking store in seconds."""

_GROUPS = ("training", "validation")


class _Display:
    """Display without a place to draw, such as a file. It is the base of those that draw."""

    groups: Sequence[str] = ("validation",)
    """Groups whose metrics are shown."""

    def add(self, metrics: Mapping[str, Any], step: int, curve: str) -> None:
        """Show the metrics of a report."""

    def draw(self, words: str, done: float) -> None:
        """Show how far the experiment is.

        Args:
            words: what is shown.
            done: share of the work that is done, 0 to 1.
        """


def print_line(text: str) -> None:
    """Print a line, above the progress bar if there is one."""
    print(text, flush=True)  # noqa: T201


def print_notices(config: ExperimentConfig) -> None:
    """Print what a user should know about a config that is submitted."""
    for notice in config.notices:
        print_line(f"note: {notice}")


@contextmanager
def display_progress(experiment_id: int, url: str) -> Iterator[None]:
    """Show the progress of an experiment and each of its validations while the block runs.

    Args:
        experiment_id: experiment to show.
        url: URL of its tracking store.
    """
    over = threading.Event()
    with open_store(url) as store:
        searcher = store.experiment(experiment_id).config.get("searcher") or {}
    with _open_display(searcher) as display:
        watcher = threading.Thread(target=_watch, args=(url, experiment_id, display, over), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join(30)


def _watch(url: str, experiment_id: int, display: _Display, over: threading.Event) -> None:
    seen: dict[tuple[int, str], int] = {}
    with open_store(url) as store:
        last = False
        while not last:
            last = over.wait(_POLL_SECONDS)
            trials = store.trials(experiment_id)
            for trial, group in product(trials, display.groups):
                for report in store.metrics(trial.id, group=group, after=seen.get((trial.id, group), -1)):
                    seen[trial.id, group] = report.steps_completed
                    is_search = display.groups != _GROUPS
                    display.add(report.metrics, report.steps_completed, f"trial {trial.id}" if is_search else group)
                    if group == "validation":
                        print_line(_format_report(report))
            many = f": {len(trials)} trials" if len(trials) > 1 else ""
            display.draw(f"experiment {experiment_id}{many}", store.experiment(experiment_id).progress)


def _format_report(report: MetricsReport) -> str:
    values = [format_metric(name, value) for name, value in report.metrics.items() if isinstance(value, Real)]
    return f"trial {report.trial_id}: batch {report.steps_completed} validation {' '.join(values)}"


def _open_display(searcher: Mapping[str, Any]) -> AbstractContextManager[_Display]:
    if in_notebook():
        return nullcontext(_InCell(searcher.get("metric") or "", is_search=searcher.get("name") != "single"))
    if hasattr(sys.stdout, "isatty") and sys.stdout.isatty():  # a script may have replaced it by something simpler
        if has_extra("cli"):
            return _on_terminal()
        print(explain_missing_extra("cli"), file=sys.stderr)  # noqa: T201
    return nullcontext(_Display())


@contextmanager
def _on_terminal() -> Iterator[_Display]:
    """Draw the bar in the last line of the terminal. While it is there, rich prints other output above it."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    class Bar(_Display):
        def draw(self, words: str, done: float) -> None:
            bar.update(task, description=words, completed=done)

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(soft_wrap=True)) as bar:
        task = bar.add_task("starting", total=1.0)
        yield Bar()


class _InCell(_Display):
    """Panel in a notebook's cell, with the curves of the trial, or of the validations of a search's trials."""

    def __init__(self, metric: str, *, is_search: bool) -> None:
        self._panel = NotebookPanel(metric)
        if not is_search:
            self.groups = _GROUPS

    def add(self, metrics: Mapping[str, Any], step: int, curve: str) -> None:
        self._panel.add(metrics, step, curve)

    def draw(self, words: str, done: float) -> None:
        self._panel.draw(f"{words}: {done:.0%}", done)
