"""Live display of a search, in the last lines of a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from det_core.cli.render.live_trial import LiveArea
from det_core.cli.render.records import format_hyperparameters, varying_hyperparameters
from det_core.cli.render.search_watcher import STOPPED_EARLY, SearchWatcher
from det_core.core._progress_line import Pace
from det_core.interfaces.launcher import Phase
from det_core.interfaces.records import STATE_WORDS, State, TrialResult, current_placement
from det_core.text import STATE_COLORS, format_value
from det_core.tracking.printable import printable_text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_RUNNING = (State.ACTIVE, State.STOPPING_CANCELED, State.STOPPING_KILLED)
_RUNGS = 8
"""Maximum number of rungs to show. Those with the greatest length are shown."""
_SAMPLES = 60
"""Number of changes of the progress from which the remaining time is estimated."""
_BAR, _LABEL = 20, 6
"""Widths in columns."""
_MARGIN = 1
"""Number of free columns at the right, and of free lines at the bottom for the cursor."""


class LiveSearch(LiveArea):
    """Live lines for a search, with messages about ended and failed trials above them."""

    def __init__(self, watcher: SearchWatcher, status: Callable[[], str], console: Console | None = None) -> None:
        super().__init__(status, console)
        self._watcher = watcher
        self._pace = Pace(_SAMPLES)

    def update(self) -> None:
        for news in self._watcher.poll():
            if not news.routine:
                self._live.console.print(Text(news.text), soft_wrap=True)
        self._pace.update(self._watcher.experiment.progress)
        self._live.update(self._area(), refresh=True)

    def _area(self) -> RenderableType:
        head = Table.grid(padding=(0, 2))
        head.add_column(width=_LABEL)
        head.add_column(no_wrap=True)
        lines = [*self._lines()]
        for name, content in lines:
            head.add_row(Text(name, "dim"), content)
        room = self._live.console.height - len(lines) - 2 - _MARGIN
        return Group(head, *self._running(max(room, 1)))

    def _lines(self) -> Iterator[tuple[str, RenderableType]]:
        """Yield the lines about the search as a whole, each as a label and its content."""
        watcher = self._watcher
        yield "search", self._progress()
        status = self._status()
        if status:
            yield "", Text(status, "bold yellow")
        if not watcher.results:
            yield "trials", Text(f"experiment {watcher.experiment.id} starts")
            return
        yield "trials", self._counts()
        waiting = [result.trial for result in watcher.results if _waits(result)]
        if waiting:
            more = f"  and {len(waiting) - 1} more" if len(waiting) > 1 else ""
            placement = printable_text(current_placement(waiting[0]))
            yield "waits", self._fitting(Text(f"trial {waiting[0].id}: {placement}{more}", "yellow"))
        best = watcher.best
        if best and best.best:
            names = varying_hyperparameters(watcher.results)
            value = f"{printable_text(watcher.metric)}={format_value(best.best.value)}"
            where = f" at batch {best.best.steps_completed} of trial {best.trial.id}  "
            yield (
                "best",
                self._fitting(Text.assemble((value, "green"), where, format_hyperparameters(best.trial, names))),
            )
        rungs = watcher.rungs
        if len(rungs) > 1:
            shown = [*rungs.items()][-_RUNGS:]
            words = "  ".join(f"{length}: {reached}/{asked}" for length, (reached, asked) in shown)
            unit = f"{watcher.unit}: " if watcher.unit else ""
            yield "rungs", self._fitting(Text(f"{words}  ({unit}trials that reached / will reach it)"))

    def _progress(self) -> RenderableType:
        progress = self._watcher.experiment.progress
        name = (self._watcher.experiment.config.get("searcher") or {}).get("name", "")
        line = Table.grid(padding=(0, 1))
        line.add_column(width=_BAR)
        words = Text(f"{progress:.0%}", "bold")
        rate = self._pace.rate
        if rate and progress < 1:
            words.append(f"  {format_value(timedelta(seconds=(1 - progress) / rate))} left", "cyan")
        line.add_row(
            ProgressBar(total=1, completed=progress, pulse=not progress), words, Text(printable_text(name), "dim")
        )
        return line

    def _counts(self) -> Text:
        states = self._watcher.states
        colours = {name: STATE_COLORS.get(state.value, "") for state, name in STATE_WORDS.items()}
        colours[STOPPED_EARLY] = colours[STATE_WORDS[State.COMPLETED]]
        shown = ((name, states[name]) for name in colours if name in states)
        return Text("  ").join(Text(f"{number} {name}", colours[name]) for name, number in shown)

    def _running(self, room: int) -> Iterator[RenderableType]:
        """Yield a table of the running trials, the best first, of at most ``room`` rows."""
        watcher = self._watcher
        running = [result for result in watcher.results if result.trial.state in _RUNNING]
        if not running:
            return
        names = varying_hyperparameters(watcher.results)
        sign = 1 if watcher.smaller_is_better else -1
        running.sort(key=lambda one: sign * one.latest.value if one.latest else float("inf"))
        drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        placed = any(current_placement(result.trial) for result in running)
        for header in ("trial", "batches", "trained", watcher.metric, *["placement"] * placed, "hyperparameters"):
            drawn.add_column(Text(printable_text(header)), no_wrap=True, overflow="ellipsis")
        shown = running if len(running) <= room else running[: room - 1]
        for result in shown:
            drawn.add_row(*map(Text, self._cells(result, names, placed=placed)))
        yield drawn
        if len(shown) < len(running):
            yield Text(f"and {len(running) - len(shown)} more", "dim")

    def _cells(self, result: TrialResult, names: Sequence[str], *, placed: bool) -> Iterator[str]:
        trial = result.trial
        yield str(trial.id)
        yield str(trial.steps_completed)
        yield f"{trial.progress:.0%} of {trial.searcher_length}" if trial.searcher_length else ""
        yield format_value(result.latest.value) if result.latest else "-"
        if placed:
            yield printable_text(current_placement(trial))
        yield format_hyperparameters(trial, names)

    def _fitting(self, line: Text) -> Text:
        line.truncate(self._live.console.width - _LABEL - 2 - _MARGIN, overflow="ellipsis")
        return line


def _waits(result: TrialResult) -> bool:
    """Return whether a trial waits for slots, for its nodes, or for its next start."""
    placement = current_placement(result.trial)
    return bool(placement) and not placement.startswith(Phase.RUNNING.value)
