"""Live display of an experiment: a progress bar in terminals and notebooks, and a line per validation."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from numbers import Real

from det_core.core._python_session import in_notebook
from det_core.extras import explain_missing_extra, has_extra
from det_core.interfaces.records import MetricsReport
from det_core.tracking import open_store
from det_core.tracking.printable import printable_text

_POLL_SECONDS = 0.5
"""Polling interval of the tracking store in seconds."""

Draw = Callable[[str, float], None]
"""Function that takes a description and the share that is done, and draws the progress bar."""


def print_line(text: str) -> None:
    """Print a line, above the progress bar if there is one."""
    print(text, flush=True)  # noqa: T201


@contextmanager
def display_progress(experiment_id: int, url: str) -> Iterator[None]:
    """Show the progress of an experiment and each of its validations while the block runs.

    Args:
        experiment_id: experiment to show.
        url: URL of its tracking store.
    """
    over = threading.Event()
    with _bar() as draw:
        watcher = threading.Thread(target=_watch, args=(url, experiment_id, draw, over), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join(30)


def _watch(url: str, experiment_id: int, draw: Draw, over: threading.Event) -> None:
    seen: dict[int, int] = {}
    with open_store(url) as store:
        last = False
        while not last:
            last = over.wait(_POLL_SECONDS)
            trials = store.trials(experiment_id)
            for trial in trials:
                for report in store.metrics(trial.id, group="validation", after=seen.get(trial.id, -1)):
                    seen[trial.id] = report.steps_completed
                    print_line(_format_report(report))
            many = f": {len(trials)} trials" if len(trials) > 1 else ""
            draw(f"experiment {experiment_id}{many}", store.experiment(experiment_id).progress)


def _format_report(report: MetricsReport) -> str:
    values = [
        f"{printable_text(name)}={value:.4g}" for name, value in report.metrics.items() if isinstance(value, Real)
    ]
    return f"trial {report.trial_id}: batch {report.steps_completed} validation {' '.join(values)}"


def _bar() -> AbstractContextManager[Draw]:
    if in_notebook():
        return nullcontext(_in_cell())
    if hasattr(sys.stdout, "isatty") and sys.stdout.isatty():  # a script may have replaced it by something simpler
        if has_extra("cli"):
            return _on_terminal()
        print(explain_missing_extra("cli"), file=sys.stderr)  # noqa: T201
    return nullcontext(lambda what, done: None)


@contextmanager
def _on_terminal() -> Iterator[Draw]:
    """Draw the bar in the last line of the terminal. While it is there, rich prints other output above it."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(soft_wrap=True)) as bar:
        task = bar.add_task("starting", total=1.0)
        yield lambda what, done: bar.update(task, description=what, completed=done)


def _in_cell() -> Draw:
    """Return a function that updates one element of a notebook cell's output."""
    handle = import_module("IPython.display").display({}, raw=True, display_id=True)

    def draw(what: str, done: float) -> None:
        text = f"{what}: {done:.0%}"
        handle.update({"text/plain": text, "text/html": f'<progress value="{done}"></progress> {text}'}, raw=True)

    return draw
