"""A running experiment as text: one live line on a terminal, plain lines in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from det_core.cli._output import log_text, scalars
from det_core.cli._watch import News, Watcher
from det_core.interfaces.tracking import LogLine


@contextmanager
def show(watcher: Watcher, status: Callable[[], str] = lambda: "") -> Iterator[Callable[[], None]]:
    """Yield a function that shows what is new; call it often. What is left is shown on leaving.

    Args:
        status: what the program is busy with besides, in a few words.
    """
    if sys.stdout.isatty():
        from det_core.cli._live import LiveLine

        with LiveLine(watcher, status) as line:
            yield line.update
        return
    update = _until_closed(lambda: _print_news(watcher))
    try:
        yield update
    finally:
        update()


def _print_news(watcher: Watcher) -> None:
    for news in watcher.poll():
        print(news_text(watcher, news))
    sys.stdout.flush()


def news_text(watcher: Watcher, news: News) -> str:
    """A log line, or ``trial 1: batch 300/1000 training loss=0.12``."""
    if isinstance(news, LogLine):
        return log_text(news)
    batch = f"{news.steps_completed}/{watcher.total}" if watcher.total else str(news.steps_completed)
    return f"trial {news.trial_id}: batch {batch} {news.group} {scalars(news.metrics)}"


def _until_closed(update: Callable[[], None]) -> Callable[[], None]:
    """Nobody reads any more (``det run ... | head``): train on in silence."""
    closed = False

    def guarded() -> None:
        nonlocal closed
        try:
            if not closed:
                update()
        except BrokenPipeError:
            closed = True

    return guarded
