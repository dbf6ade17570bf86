"""What trials printed."""

from __future__ import annotations

import time
from collections.abc import Iterator

from det_core.cli._output import log_text, print_json, text
from det_core.cli._watch import POLL_SECONDS, settled
from det_core.interfaces.tracking import LogLine, TrackingStore


def print_logs(
    store: TrackingStore, experiment_id: int, *, trial_id: int | None = None, follow: bool, as_json: bool
) -> None:
    """Print the lines of one trial, or of all; ``follow`` goes on until the experiment is over."""
    lines = _lines(store, experiment_id, trial_id, follow=follow)
    if as_json:
        print_json(lines)
        return
    for line in lines:
        print(text(line.time), log_text(line), flush=follow)


def _lines(store: TrackingStore, experiment_id: int, trial_id: int | None, *, follow: bool) -> Iterator[LogLine]:
    seen: dict[int, int] = {}
    over = False
    while not over:
        over = not follow or settled(store, experiment_id) is not None
        for trial in store.trials(experiment_id):
            if trial_id in (None, trial.id):
                for line in store.logs(trial.id, after=seen.get(trial.id, 0)):
                    seen[trial.id] = line.id
                    yield line
        if not over:
            time.sleep(POLL_SECONDS)
