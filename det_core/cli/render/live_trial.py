"""Live display of one trial, in the last line of a terminal."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from det_core.cli.render.experiment_summary import best_validation
from det_core.cli.render.sanitized_streams import unwrap_stream
from det_core.cli.render.trial_watcher import TrialWatcher
from det_core.core._progress_line import BAR_SHARE, MARGIN, SEPARATOR, Part, TrialProgress, fit_parts, format_batches
from det_core.interfaces.launcher import Phase
from det_core.interfaces.records import LogLine, current_placement, searcher_metric
from det_core.text import format_log_line
from det_core.tracking.printable import printable_text

if TYPE_CHECKING:
    from typing_extensions import Self


class LiveArea(ABC):
    """Lines at the bottom of a terminal that are redrawn, with new output above them.

    The lines are drawn while the context manager is open and erased at its end.

    Args:
        status: function that returns what the program is doing besides training, or "".
        console: the terminal, or None for stdout.
    """

    def __init__(self, status: Callable[[], str], console: Console | None) -> None:
        self._status = status
        # rich finds only the outermost of several wrapped streams, and the sanitized one removes what moves the cursor.
        terminal = console or Console(file=unwrap_stream(sys.stdout))
        self._live = Live(console=terminal, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        try:
            self.update()
        finally:
            self._live.stop()

    @abstractmethod
    def update(self) -> None:
        """Poll for news and redraw."""


class LiveTrial(LiveArea):
    """Live line for one trial, with the output of the trial above it."""

    def __init__(self, watcher: TrialWatcher, status: Callable[[], str], console: Console | None = None) -> None:
        super().__init__(status, console)
        self._watcher = watcher
        self._progress = TrialProgress(searcher_metric(watcher.experiment.config)[0])
        self._note_best()

    def update(self) -> None:
        for news in self._watcher.poll():
            if isinstance(news, LogLine):
                self._live.console.print(Text(format_log_line(news)), soft_wrap=True)
                continue
            self._progress.latest[news.group] = news.metrics
            if news.group == "validation":
                self._note_best()
        self._progress.steps, self._progress.total = self._watcher.steps, self._watcher.total
        self._progress.pace.update(self._progress.steps)
        self._live.update(self._line(), refresh=True)

    def _note_best(self) -> None:
        best = best_validation(self._watcher.store, self._watcher.experiment)
        self._progress.best = best.value if best else None

    def _line(self) -> Table:
        width = self._live.console.width
        bar = width // BAR_SHARE
        parts = fit_parts(self._parts(), width - bar - MARGIN)
        line = Table.grid(padding=(0, 1))
        line.add_column(width=bar)
        line.add_row(
            ProgressBar(total=1, completed=self._progress.done, pulse=not self._progress.steps),
            Text(SEPARATOR).join(Text(part.text, part.style) for part in parts),
        )
        return line

    def _parts(self) -> Iterator[Part]:
        status = self._status()
        if status:
            yield Part(status, 0, "bold yellow")
        placement = "; ".join(filter(None, map(current_placement, self._watcher.trials)))
        is_running = placement.startswith(Phase.RUNNING.value)
        if placement and not is_running:
            yield Part(printable_text(placement), 0, "yellow")
        if self._progress.steps:
            yield from self._progress.parts()
        else:
            total = f", {format_batches(self._progress.total)}" if self._progress.total else ""
            yield Part(f"experiment {self._watcher.experiment.id} starts{total}", 1)
        if is_running:
            yield Part(printable_text(placement), 9, "dim")
