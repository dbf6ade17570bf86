"""Live display of one trial, in the last line of a terminal."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from det_core.cli.render.experiment_summary import BestValidation, best_validation
from det_core.cli.render.formats import format_log_line, format_scalars, format_value
from det_core.cli.render.records import current_placement
from det_core.cli.render.trial_watcher import Pace, TrialWatcher
from det_core.interfaces.launcher import Phase
from det_core.interfaces.records import LogLine, MetricsReport
from det_core.tracking.printable import printable_text

if TYPE_CHECKING:
    from rich.console import Console
    from typing_extensions import Self

_BAR_SHARE = 6
"""Width of the terminal divided by the width of the progress bar."""
_MARGIN = 5
"""Number of free columns at the right, where the terminal echoes ``^C`` without wrapping the line."""
_METRICS = 3
"""Maximum number of metrics per group."""


class LiveArea(ABC):
    """Lines at the bottom of a terminal that are redrawn, with new output above them.

    The lines are drawn while the context manager is open and erased at its end.

    Args:
        status: function that returns what the program is doing besides training, or "".
        console: the terminal, or None for stdout.
    """

    def __init__(self, status: Callable[[], str], console: Console | None) -> None:
        self._status = status
        self._live = Live(console=console, auto_refresh=False, transient=True)

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
        self._pace = Pace()
        self._latest: dict[str, MetricsReport] = {}
        self._best: BestValidation | None = best_validation(watcher.store, watcher.experiment)

    def update(self) -> None:
        for news in self._watcher.poll():
            if isinstance(news, LogLine):
                self._live.console.print(Text(format_log_line(news)), soft_wrap=True)
                continue
            self._latest[news.group] = news
            if news.group == "validation":
                self._best = best_validation(self._watcher.store, self._watcher.experiment)
        self._live.update(self._line(), refresh=True)

    def _line(self) -> Table:
        steps, total = self._watcher.steps, self._watcher.total
        self._pace.update(steps)
        width = self._live.console.width
        words = Text("  ").join(self._parts(steps, total))
        words.truncate(width - width // _BAR_SHARE - _MARGIN, overflow="ellipsis")
        line = Table.grid(padding=(0, 1))
        line.add_column(width=width // _BAR_SHARE)
        line.add_row(ProgressBar(total=total or 1, completed=steps if total else 0, pulse=not steps), words)
        return line

    def _parts(self, steps: int, total: int | None) -> Iterator[Text]:
        """Yield the parts of the line, the most important first, because a narrow terminal shows only the beginning."""
        status = self._status()
        if status:
            yield Text(status, "bold yellow")
        placement = "; ".join(filter(None, map(current_placement, self._watcher.trials)))
        is_running = placement.startswith(Phase.RUNNING.value)
        if placement and not is_running:
            yield Text(printable_text(placement), "yellow")
        if not steps:
            yield Text(f"experiment {self._watcher.experiment.id} starts")
            return
        yield Text(f"{steps}/{total}" if total else f"{steps} batches", "bold")
        rate = self._pace.rate
        if rate:
            yield Text(f"{rate:.{0 if rate >= 10 else 2}f} batches/s", "cyan")
            if total and total > steps:
                yield Text(f"{format_value(timedelta(seconds=(total - steps) / rate))} left", "cyan")
        if self._best:
            yield Text(f"best {printable_text(self._best.metric)}={format_value(self._best.value)}", "green")
        for report in self._latest.values():
            yield Text(format_scalars(_labelled(report), _METRICS))
        if is_running:
            yield Text(printable_text(placement), "dim")


def _labelled(report: MetricsReport) -> dict[str, Any]:
    """Return the metrics of a report. Names of validation metrics get the prefix ``val_``, as in TensorBoard."""
    prefix = "val_" if report.group == "validation" else ""
    return {name if name.startswith("val") else prefix + name: value for name, value in report.metrics.items()}
