"""Display of a running experiment, live on a terminal with ``det-core[cli]`` and as plain lines otherwise."""

from __future__ import annotations

import errno
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from det_core.cli.render.search_watcher import SearchWatcher
from det_core.cli.render.trial_watcher import News, TrialWatcher
from det_core.extras import explain_missing_extra, has_extra
from det_core.interfaces.records import LogLine
from det_core.interfaces.tracking import TrackingStore
from det_core.text import format_log_line, format_scalars

if TYPE_CHECKING:
    from det_core.cli.render.live_search import LiveSearch
    from det_core.cli.render.live_trial import LiveTrial

_PAUSE = 0.5
"""Minimum seconds between two polls of a search."""
_SHARE = 0.05
"""Maximum share of the time that polling a search may take, 0 to 1."""


AnyWatcher = TrialWatcher | SearchWatcher


def create_watcher(store: TrackingStore, experiment_id: int) -> AnyWatcher:
    """Return a watcher of an experiment, which shows a single trial in detail or the trials of a search."""
    searcher = store.experiment(experiment_id).config.get("searcher") or {}
    return (TrialWatcher if searcher.get("name", "single") == "single" else SearchWatcher)(store, experiment_id)


@contextmanager
def show_progress(watcher: AnyWatcher, status: Callable[[], str] = lambda: "") -> Iterator[Callable[[], None]]:
    """Show an experiment during the block. Remaining news is shown at its end.

    Args:
        watcher: watcher of the experiment.
        status: function that returns what the program is doing besides training, in a few words, or "".

    Yields:
        Function that shows the news since its last call. Call it often.
    """
    on_terminal = sys.stdout.isatty()
    if on_terminal and has_extra("cli"):
        with _live(watcher, status) as live:
            update = _until_closed(live.update)
            yield update if isinstance(watcher, TrialWatcher) else _throttle_updates(update)
        return
    if on_terminal:
        print(f"det: {explain_missing_extra('cli')}", file=sys.stderr)
    update = _until_closed(lambda: _print_news(watcher))
    try:
        yield update if isinstance(watcher, TrialWatcher) else _throttle_updates(update)
    finally:
        update()


def _live(watcher: AnyWatcher, status: Callable[[], str]) -> LiveTrial | LiveSearch:
    if isinstance(watcher, TrialWatcher):
        from det_core.cli.render.live_trial import LiveTrial

        return LiveTrial(watcher, status)
    from det_core.cli.render.live_search import LiveSearch

    return LiveSearch(watcher, status)


def _print_news(watcher: AnyWatcher) -> None:
    lines = (
        [format_news(watcher, news) for news in watcher.poll()]
        if isinstance(watcher, TrialWatcher)
        else [news.text for news in watcher.poll()]
    )
    for line in lines:
        print(line)
    sys.stdout.flush()


def format_news(watcher: TrialWatcher, news: News) -> str:
    """Format a log line or a metrics report.

    A report becomes a line like ``trial 1: batch 300/1000 training loss=0.12``.
    """
    if isinstance(news, LogLine):
        return format_log_line(news)
    batch = f"{news.steps_completed}/{watcher.total}" if watcher.total else str(news.steps_completed)
    return f"trial {news.trial_id}: batch {batch} {news.group} {format_scalars(news.metrics)}"


def _throttle_updates(update: Callable[[], None]) -> Callable[[], None]:
    """Return a function that limits ``update`` to a small share of the time, because searches may be large."""
    due = 0.0

    def when_due() -> None:
        nonlocal due
        start = time.monotonic()
        if start >= due:
            update()
            end = time.monotonic()
            due = end + max(_PAUSE, (end - start) / _SHARE)

    return when_due


def _until_closed(update: Callable[[], None]) -> Callable[[], None]:
    """Return a function that calls ``update`` until the output is closed, so that training continues silently.

    The output is closed by ``det run ... | head``, for example, and when a terminal is closed.
    """
    closed = False

    def update_if_open() -> None:
        nonlocal closed
        try:
            if not closed:
                update()
        except OSError as error:
            if not isinstance(error, BrokenPipeError) and error.errno != errno.EIO:
                raise
            closed = True

    return update_if_open
