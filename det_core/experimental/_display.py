"""An experiment as it trains, shown to whoever waits for it: a bar in terminals and notebooks, lines everywhere."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from numbers import Real

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from det_core.experimental._session import in_notebook
from det_core.interfaces.tracking import MetricsReport
from det_core.tracking import open_store
from det_core.tracking.printable import printable

_EVERY = 0.5
"""Seconds between two looks into the record."""
_COLUMNS = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())

Draw = Callable[[str, float], None]
"""Takes what trains, and the share of it that is done."""


def say(text: str) -> None:
    """Print a line."""
    _console().print(text)


@contextmanager
def shown(experiment_id: int, url: str) -> Iterator[None]:
    """Show an experiment of the record at ``url`` meanwhile: how far it is, and each validation."""
    console = _console()
    over = threading.Event()
    with _bar(console) as draw:
        watcher = threading.Thread(target=_watch, args=(url, experiment_id, console, draw, over), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join(30)


def _console() -> Console:
    # Lines of a notebook are those of its standard output, too.
    return Console(highlight=False, markup=False, soft_wrap=True, force_jupyter=False)


def _watch(url: str, experiment_id: int, console: Console, draw: Draw, over: threading.Event) -> None:
    seen: dict[int, int] = {}
    with open_store(url) as store:
        last = False
        while not last:
            last = over.wait(_EVERY)
            trials = store.trials(experiment_id)
            for trial in trials:
                for report in store.metrics(trial.id, group="validation", after=seen.get(trial.id, -1)):
                    seen[trial.id] = report.steps_completed
                    console.print(_text(report))
            many = f": {len(trials)} trials" if len(trials) > 1 else ""
            draw(f"experiment {experiment_id}{many}", store.experiment(experiment_id).progress)


def _text(report: MetricsReport) -> str:
    values = [f"{printable(name)}={value:.4g}" for name, value in report.metrics.items() if isinstance(value, Real)]
    return f"trial {report.trial_id}: batch {report.steps_completed} validation {' '.join(values)}"


def _bar(console: Console) -> AbstractContextManager[Draw]:
    if in_notebook():
        return nullcontext(_in_cell())
    return _on_terminal(console) if console.is_terminal else nullcontext(lambda what, done: None)


@contextmanager
def _on_terminal(console: Console) -> Iterator[Draw]:
    with Progress(*_COLUMNS, console=console) as bar:
        task = bar.add_task("starting", total=1.0)
        yield lambda what, done: bar.update(task, description=what, completed=done)


def _in_cell() -> Draw:
    """In a notebook's output, one element that changes."""
    handle = import_module("IPython.display").display({}, raw=True, display_id=True)

    def draw(what: str, done: float) -> None:
        text = f"{what}: {done:.0%}"
        handle.update({"text/plain": text, "text/html": f'<progress value="{done}"></progress> {text}'}, raw=True)

    return draw
