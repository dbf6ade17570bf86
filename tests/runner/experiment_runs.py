"""Runs of whole experiments in the test's process, and what they have recorded."""

from __future__ import annotations

import sys

from det_core.interfaces.records import ExperimentRecord, State, TrialRecord
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import ExperimentRunner


def run(store: TrackingStore, experiment: ExperimentRecord) -> State:
    """Run an experiment, and print the logs of its trials, which pytest shows if the test fails."""
    try:
        return ExperimentRunner(store, experiment.id).run()
    finally:
        for trial in store.trials(experiment.id):
            print(
                *(f"{trial.id} [{line.rank}]: {line.log}" for line in store.logs(trial.id)), sep="\n", file=sys.stderr
            )


def the_trial(store: TrackingStore, experiment: ExperimentRecord) -> TrialRecord:
    """Return the only trial of an experiment."""
    (trial,) = store.trials(experiment.id)
    return trial
