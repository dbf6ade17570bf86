"""A running experiment as text: live on a terminal, plain lines in a pipe."""

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
"""Seconds between two looks at a search, at least."""
_SHARE = 0.05
"""Of the time that looking at a search may take."""


Watch = Watcher | SearchWatcher


def watch(store: TrackingStore, experiment_id: int) -> Watch:
    """What looks after an experiment: one trial in detail, or the trials of a search."""
    searcher = store.experiment(experiment_id).config.get("searcher") or {}
    return (Watcher if searcher.get("name", "single") == "single" else SearchWatcher)(store, experiment_id)


@contextmanager
def show(watcher: Watch, status: Callable[[], str] = lambda: "") -> Iterator[Callable[[], None]]:
    """Yield a function that shows what is new; call it often. What is left is shown on leaving.

    Args:
        status: what the program is busy with besides, in a few words.
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
    """A log line, or ``trial 1: batch 300/1000 training loss=0.12``."""
    if isinstance(news, LogLine):
        return log_text(news)
    batch = f"{news.steps_completed}/{watcher.total}" if watcher.total else str(news.steps_completed)
    return f"trial {news.trial_id}: batch {batch} {news.group} {scalars(news.metrics)}"


def _seldom(update: Callable[[], None]) -> Callable[[], None]:
    """Look so seldom that it takes a small share of the time: a search may have thousands of trials."""
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
    """Training goes on silently once nobody reads the output (``det run ... | head``, or a closed terminal)."""
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
