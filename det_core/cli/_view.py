"""Display of a running experiment, live on a terminal and as plain lines otherwise."""

from __future__ import annotations

import errno
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from det_core.cli._output import log_text, scalars
from det_core.cli._watch import News, Watcher
from det_core.cli._watch_search import SearchWatcher
from det_core.interfaces.tracking import LogLine, TrackingStore

if TYPE_CHECKING:
    from det_core.cli._live import LiveLine
    from det_core.cli._live_search import LiveSearch

_PAUSE = 0.5
"""Minimum seconds between two polls of a search."""
_SHARE = 0.05
"""Maximum share of the time that polling a search may take, 0 to 1."""


Watch = Watcher | SearchWatcher


def watch(store: TrackingStore, experiment_id: int) -> Watch:
    """Return a watcher of an experiment, which shows a single trial in detail or the trials of a search."""
    searcher = store.experiment(experiment_id).config.get("searcher") or {}
    return (Watcher if searcher.get("name", "single") == "single" else SearchWatcher)(store, experiment_id)


@contextmanager
def show(watcher: Watch, status: Callable[[], str] = lambda: "") -> Iterator[Callable[[], None]]:
    """Show an experiment during the block. Remaining news is shown at its end.

    Args:
        watcher: watcher of the experiment.
        status: function that returns what the program is doing besides training, in a few words, or "".

    Yields:
        Function that shows the news since its last call. Call it often.
    """
    if sys.stdout.isatty():
        with _live(watcher, status) as live:
            update = _until_closed(live.update)
            yield update if isinstance(watcher, Watcher) else _seldom(update)
        return
    update = _until_closed(lambda: _print_news(watcher))
    try:
        yield update if isinstance(watcher, Watcher) else _seldom(update)
    finally:
        update()


def _live(watcher: Watch, status: Callable[[], str]) -> LiveLine | LiveSearch:
    if isinstance(watcher, Watcher):
        from det_core.cli._live import LiveLine

        return LiveLine(watcher, status)
    from det_core.cli._live_search import LiveSearch

    return LiveSearch(watcher, status)


def _print_news(watcher: Watch) -> None:
    lines = (
        [news_text(watcher, news) for news in watcher.poll()]
        if isinstance(watcher, Watcher)
        else [news.text for news in watcher.poll()]
    )
    for line in lines:
        print(line)
    sys.stdout.flush()


def news_text(watcher: Watcher, news: News) -> str:
    """Format a log line or a metrics report.

    A report becomes a line like ``trial 1: batch 300/1000 training loss=0.12``.
    """
    if isinstance(news, LogLine):
        return log_text(news)
    batch = f"{news.steps_completed}/{watcher.total}" if watcher.total else str(news.steps_completed)
    return f"trial {news.trial_id}: batch {batch} {news.group} {scalars(news.metrics)}"


def _seldom(update: Callable[[], None]) -> Callable[[], None]:
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

    def guarded() -> None:
        nonlocal closed
        try:
            if not closed:
                update()
        except OSError as error:
            if not isinstance(error, BrokenPipeError) and error.errno != errno.EIO:
                raise
            closed = True

    return guarded
