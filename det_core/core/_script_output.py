"""Output of a script that runs by itself: its experiment, its progress and its result.

A terminal shows the progress in its last line, and a notebook in the cell. Elsewhere there are a few lines. All of it
goes to stderr, so that a script can print its own results to stdout.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

from det_core.core._progress_line import (
    BAR_SHARE,
    MARGIN,
    SEPARATOR,
    Part,
    TrialProgress,
    fit_parts,
    format_batches,
    format_metric,
)
from det_core.core._python_session import in_notebook
from det_core.core.non_finite_metrics import find_non_finite_metrics, find_usable_checkpoint
from det_core.core.script_command import resume_command
from det_core.interfaces.records import TRAINING_STATE, MetricsReport, State, searcher_metric
from det_core.metric_directions import known_direction, missing_direction
from det_core.tracking import det_command, is_server_url
from det_core.tracking.printable import printable_text

if TYPE_CHECKING:
    from det_core.core._cluster_info import TrialInfo
    from det_core.core._notebook_panel import NotebookPanel
    from det_core.core._terminal_line import TerminalLine
    from det_core.interfaces.tracking import TrackingStore

_log = logging.getLogger("det.core")

_LINE_SECONDS = 60.0
"""Minimum seconds between two lines of progress where there is neither a terminal nor a notebook."""
_PANEL_SECONDS = 0.5
"""Minimum seconds between two updates of a notebook's cell."""
_GROUPS = ("training", "validation")
_ENDINGS = {
    State.COMPLETED: "completed",
    State.ERROR: "failed",
    State.PAUSED: "paused",
    State.CANCELED: "was canceled",
}


class ScriptOutput:
    """Output of the chief of one script. Training never fails because of it.

    Args:
        trial: the script's trial.
        has_direction: whether the script says if smaller values of the metric are better.
    """

    def __init__(self, trial: TrialInfo, *, has_direction: bool) -> None:
        self._trial = trial
        self._has_direction = has_direction
        self._metric, self._smaller_is_better = searcher_metric(trial.config)
        self._progress = TrialProgress(self._metric)
        self._status = ""
        self._place: _Place | None = None
        self._began = time.monotonic()
        self._due = 0.0

    def start(self) -> None:
        """Show the id of the experiment."""
        trial, name = self._trial, printable_text(str(self._trial.config.get("name") or ""))
        place = f"after {format_batches(trial.steps_completed)}" if trial.steps_completed else "from the beginning"
        continued = f", continued {place}" if trial.trial_run_id > 1 else ""
        self._try_to_show(
            lambda: self._open(f"experiment {trial.experiment_id}{f' ({name})' if name else ''}{continued}")
        )

    def add_reports(self, reports: Sequence[MetricsReport]) -> None:
        """Show the metrics of reports."""
        shown = [report for report in reports if report.group in _GROUPS]
        self._try_to_show(lambda: self._note(shown))
        self._show()

    def set_status(self, status: str) -> None:
        """Show what the script is doing."""
        self._status = "" if status == TRAINING_STATE else printable_text(status)
        self._show()

    def set_share(self, share: float) -> None:
        """Show the share of the work that is done, 0 to 1."""
        self._progress.share = share
        self._show()

    def set_total(self, batches: int) -> None:
        """Show the number of batches to train."""
        self._progress.total = batches
        self._show()

    def finish(self, store: TrackingStore, state: State, locate: Callable[[str], str]) -> None:
        """Show the result.

        Args:
            store: the tracking store.
            state: final state of the experiment.
            locate: function that returns the directory or URI of a checkpoint, or "" if it has none.
        """
        if self._place:
            self._try_to_show(lambda: self._close("\n".join(self._result(store, state, locate))))

    def close(self) -> None:
        """Remove the progress from the terminal, if `finish` was not reached."""
        self._try_to_show(lambda: self._close(""))

    def _close(self, result: str) -> None:
        if self._place:
            self._place.close(self._progress.done, result)
            self._place = None

    def _open(self, title: str) -> None:
        self._place = _Cell(title, self._metric) if in_notebook() else _open_stream(title)

    def _note(self, reports: Sequence[MetricsReport]) -> None:
        progress = self._progress
        for report in reports:
            progress.steps = max(progress.steps, report.steps_completed)
            progress.latest[report.group] = report.metrics
            self._note_best(report)
            if self._place:
                self._place.add(report)
        progress.pace.update(progress.steps)

    def _note_best(self, report: MetricsReport) -> None:
        value = report.metrics.get(self._metric) if report.group == "validation" else None
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value == value:  # not NaN
            best = self._progress.best
            better = min if self._smaller_is_better else max
            self._progress.best = value if best is None else better(best, value)

    def _show(self) -> None:
        place = self._place
        now = time.monotonic()
        if place and now >= self._due:
            self._due = now + place.interval
            self._try_to_show(lambda: place.show(self._progress, self._status))

    def _try_to_show(self, show: Callable[[], object]) -> None:
        try:
            show()
        except OSError:  # the terminal or pipe is closed, and so is the place for an explanation
            self._give_up()
        except Exception as error:  # noqa: BLE001  (training goes on without its display)
            self._give_up()
            _log.warning("the progress of the script is no longer shown: %s: %s", type(error).__name__, error)

    def _give_up(self) -> None:
        place, self._place = self._place, None
        if place:
            place.release()

    def _result(self, store: TrackingStore, state: State, locate: Callable[[str], str]) -> Iterator[str]:
        """Yield lines with the outcome, the best value and the checkpoint."""
        experiment_id, trial_id = self._trial.experiment_id, self._trial.trial_id
        steps = store.trial(trial_id).steps_completed
        trained = f"{format_batches(steps)}, " if steps else ""
        ending = _ENDINGS.get(state, "has not ended")
        yield f"experiment {experiment_id} {ending}: {trained}{time.monotonic() - self._began:.1f} s"
        best = store.best_validation(experiment_id, self._metric, smaller_is_better=self._smaller_is_better)
        if best:
            yield f"  best {format_metric(self._metric, best[0])} at batch {best[2]}"
            if not self._has_direction and (hint := missing_direction(self._metric)):
                yield f"  note: {hint}"
        else:
            yield from self._latest_validation()
        non_finite = find_non_finite_metrics(store, [store.trial(trial_id)], self._metric)
        yield from (f"  {printable_text(str(one))}" for one in non_finite)
        value, checkpoint = find_usable_checkpoint(store, experiment_id, non_finite)
        if checkpoint:
            batch = "" if checkpoint.steps_completed is None else f" (batch {checkpoint.steps_completed})"
            yield f"  {'latest' if value is None else 'best'} checkpoint {checkpoint.uuid}{batch}"
            place = locate(checkpoint.uuid)
            if place:
                of_others = is_server_url(store.url) and place.startswith("/")
                yield f"    in {place}{' on this machine' if of_others else ''}"
        if steps:
            det = det_command(store.url)
            yield f"  to see more: {det} experiment describe {experiment_id}, {det} experiment plot {experiment_id}"
        if state is not State.COMPLETED and (checkpoint or state is not State.ERROR):
            where = " from the latest checkpoint" if checkpoint else ""
            yield f"  to continue{where}: {resume_command(experiment_id, self._trial.config)}"

    def _latest_validation(self) -> Iterator[str]:
        metrics = self._progress.latest.get("validation")
        numbers = [(name, value) for name, value in (metrics or {}).items() if isinstance(value, (int, float))]
        if numbers:
            yield f"  latest validation {' '.join(format_metric(*number) for number in numbers)}"
            name, metric = numbers[0][0], printable_text(self._metric)
            yield f"  best unknown without {metric!r}; name a metric in the config:"
            smaller = known_direction(name)
            unsure = "" if smaller is not None else ", or False if larger values are better"
            yield f"    {{'searcher': {{'metric': {name!r}, 'smaller_is_better': {smaller is not False}}}}}{unsure}"


class _Place(ABC):
    """Place where progress is shown."""

    interval = 0.0
    """Minimum seconds between two updates."""

    def add(self, report: MetricsReport) -> None:  # noqa: B027  (only a notebook has curves)
        """Keep the metrics of a report for the curves."""

    def release(self) -> None:  # noqa: B027  (only a terminal has changed the process)
        """Let the process print as before, without writing anything."""

    @abstractmethod
    def show(self, progress: TrialProgress, status: str) -> None:
        """Show the present progress."""

    @abstractmethod
    def close(self, done: float, result: str) -> None:
        """Show the result instead of the progress."""


class _Lines(_Place):
    """Lines in a file or pipe."""

    interval = _LINE_SECONDS

    def __init__(self, title: str, stream: TextIO) -> None:
        self._stream = stream
        self._quiet_until = time.monotonic() + _LINE_SECONDS
        self._print(title)

    def show(self, progress: TrialProgress, status: str) -> None:
        if time.monotonic() >= self._quiet_until:
            self._print(_join(progress, status, 1000))

    def close(self, done: float, result: str) -> None:
        if result:
            self._print(result)

    def _print(self, text: str) -> None:
        print("\n".join(f"det: {line}" for line in text.splitlines()), file=self._stream, flush=True)


class _LastLine(_Lines):
    """Last line of a terminal."""

    interval = 0.0

    def __init__(self, title: str, stream: TextIO) -> None:
        super().__init__(title, stream)
        from det_core.core._terminal_line import TerminalLine

        self._line: TerminalLine = TerminalLine(stream)

    def show(self, progress: TrialProgress, status: str) -> None:
        width = self._line.width - MARGIN
        bar = _bar(progress.done, self._line.width // BAR_SHARE, self._stream.encoding)
        self._line.draw(f"{bar} {_join(progress, status, width - len(bar) - 1)}")

    def release(self) -> None:
        self._line.release()

    def close(self, done: float, result: str) -> None:
        self._line.close()
        super().close(done, result)


class _Cell(_Place):
    """Output of a cell of a notebook."""

    interval = _PANEL_SECONDS

    def __init__(self, title: str, metric: str) -> None:
        from det_core.core._notebook_panel import NotebookPanel

        self._title = title
        self._panel: NotebookPanel = NotebookPanel(metric)
        self._panel.draw(title, 0.0)

    def add(self, report: MetricsReport) -> None:
        self._panel.add(report.metrics, report.steps_completed, report.group)

    def show(self, progress: TrialProgress, status: str) -> None:
        self._panel.draw(f"{self._title}: {_join(progress, status, 1000)}", progress.done)

    def close(self, done: float, result: str) -> None:
        if result:
            self._panel.draw(self._title, done, result)


def _open_stream(title: str) -> _Place | None:
    stream = sys.stderr
    if stream is None:  # a process without a console
        return None
    return (_LastLine if stream.isatty() and os.environ.get("TERM") != "dumb" else _Lines)(title, stream)


def _join(progress: TrialProgress, status: str, width: int) -> str:
    parts = [*([Part(status, 1)] if status else ()), *progress.parts()]
    return SEPARATOR.join(part.text for part in fit_parts(parts, width))


def _bar(done: float, width: int, encoding: str | None) -> str:
    full, empty = "━─" if (encoding or "").lower().startswith("utf") else "#-"
    count = round(done * width)
    return full * count + empty * (width - count)
