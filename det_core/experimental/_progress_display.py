"""Live display of an experiment: a progress bar in terminals and notebooks, and a line per validation."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from numbers import Real

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from det_core.experimental._python_session import in_notebook
from det_core.interfaces.records import MetricsReport
from det_core.tracking import open_store
from det_core.tracking.printable import printable_text

_POLL_SECONDS = 0.5
"""Polling interval of the tracking store in seconds."""
_COLUMNS = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())

Draw = Callable[[str, float], None]
"""Function that takes a description and the share that is done, and draws the progress bar."""


def print_line(text: str) -> None:
    """Print a line."""
    _console().print(text)


@contextmanager
def display_progress(experiment_id: int, url: str) -> Iterator[None]:
    """Show the progress of an experiment and each of its validations while the block runs.

    Args:
        experiment_id: experiment to show.
        url: URL of its tracking store.
    """
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
    # In a notebook, too, lines go to the standard output.
    return Console(highlight=False, markup=False, soft_wrap=True, force_jupyter=False)


def _watch(url: str, experiment_id: int, console: Console, draw: Draw, over: threading.Event) -> None:
    seen: dict[int, int] = {}
    with open_store(url) as store:
        last = False
        while not last:
            last = over.wait(_POLL_SECONDS)
            trials = store.trials(experiment_id)
            for trial in trials:
                for report in store.metrics(trial.id, group="validation", after=seen.get(trial.id, -1)):
                    seen[trial.id] = report.steps_completed
                    console.print(_format_report(report))
            many = f": {len(trials)} trials" if len(trials) > 1 else ""
            draw(f"experiment {experiment_id}{many}", store.experiment(experiment_id).progress)


def _format_report(report: MetricsReport) -> str:
    values = [
        f"{printable_text(name)}={value:.4g}" for name, value in report.metrics.items() if isinstance(value, Real)
    ]
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
    """Return a function that updates one element of a notebook cell's output."""
    handle = import_module("IPython.display").display({}, raw=True, display_id=True)

    def draw(what: str, done: float) -> None:
        text = f"{what}: {done:.0%}"
        handle.update({"text/plain": text, "text/html": f'<progress value="{done}"></progress> {text}'}, raw=True)

    return draw
