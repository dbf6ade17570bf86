"""Permissions of the workers of a run on the tracking store of their runner."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from det_core.errors import RecordNotFound, StaleRun, TrackingError
from det_core.interfaces.records import CheckpointState, MetricsReport, State, SystemMetrics
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store
from det_core.tracking.remote import ACCOUNT_METHODS, RunAccess, answer_call, open_remote_store
from det_core.tracking.remote._access import WORKER_METHODS
from det_core.tracking.remote._calls import METHODS

ROOT = Path(__file__).parents[2]
IN_WORKERS = ("det_core/core", "det_core/trial", "det_core/launch", "det_core/experimental", "plugins")
NOT_IN_WORKERS = {
    "det_core/core/_unmanaged_experiment.py": "records a script that has no runner",
    "det_core/core/_script_output.py": "shows a script that has no runner",
    "det_core/experimental/_in_process.py": "trains in the user's session",
    "plugins/server": "answers the calls of workers",
}
STORES = ("store", "record", "_record")
"""Endings of the expressions for tracking stores."""

OWN, SISTER, FOREIGN = 1, 2, 3
"""Trials: that of the worker, another one of its experiment, and one of another experiment."""


@pytest.fixture
def direct(tmp_path: Path) -> Iterator[TrackingStore]:
    with open_store(f"sqlite:///{tmp_path}/det.db") as store:
        for experiment, trials in ((1, (OWN, SISTER)), (2, (FOREIGN,))):
            store.create_experiment(config={})
            for trial in trials:
                store.create_trial(experiment, hparams={}, seed=0)
                store.start_run(trial, allocation_id="a")
                for state in ("active", "done"):
                    store.begin_checkpoint(f"{state}-{trial}", trial_id=trial, run_id=1, storage={})
                store.complete_checkpoint(f"done-{trial}", run_id=1, steps_completed=1, resources={}, metadata={})
        store.set_searcher_operation(OWN, 5)
        yield store


@pytest.fixture
def worker(direct: TrackingStore) -> TrackingStore:
    """Return the store as the workers of the first run of the trial `OWN` see it."""
    access = RunAccess(experiment_id=1, trial_id=OWN, run_id=1)
    return open_remote_store(partial(answer_call, direct, access=access), url="")


def methods_in(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            owner = ast.unparse(node.value).rpartition(".")[2]
            if owner.endswith(STORES):
                yield node.attr


def test_workers_may_call_exactly_the_methods_that_they_need() -> None:
    files = [file.relative_to(ROOT) for part in IN_WORKERS for file in (ROOT / part).rglob("*.py")]
    used = {
        name
        for file in [*files, Path("det_core/tracking/control.py")]
        if not any(file.is_relative_to(other) for other in NOT_IN_WORKERS) and not {"tests", "testing"} & {*file.parts}
        for name in methods_in(ROOT / file)
    }
    assert used == set(WORKER_METHODS)


def test_workers_may_not_use_accounts() -> None:
    assert "password_hash" in ACCOUNT_METHODS
    assert not ACCOUNT_METHODS & set(WORKER_METHODS)


def report(trial: int, run: int = 1) -> MetricsReport:
    return MetricsReport(trial_id=trial, run_id=run, group="training", steps_completed=1, metrics={"loss": 1.0})


def sample(trial: int) -> SystemMetrics:
    return SystemMetrics(trial_id=trial, run_id=1, group="cpu", metrics={}, time=datetime.now(timezone.utc))


def complete(store: TrackingStore, trial: int, run: int = 1) -> None:
    store.complete_checkpoint(f"active-{trial}", run_id=run, steps_completed=1, resources={}, metadata={})


Write = Callable[[TrackingStore, Any], object]

OF_RUN: dict[str, Write] = {
    "acknowledge_preemption": lambda store, trial: store.acknowledge_preemption(trial, 1),
    "add_trial_source": lambda store, trial: store.add_trial_source(trial, 1, f"done-{FOREIGN}"),
    "begin_checkpoint": lambda store, trial: store.begin_checkpoint("new", trial_id=trial, run_id=1, storage={}),
    "complete_checkpoint": complete,
    "complete_searcher_operation": lambda store, trial: store.complete_searcher_operation(trial, 1, 5, 0.5),
    "report_early_exit": lambda store, trial: store.report_early_exit(trial, 1, "x"),
    "report_metrics": lambda store, trial: store.report_metrics([report(OWN), report(trial)]),
    "report_system_metrics": lambda store, trial: store.report_system_metrics([sample(OWN), sample(trial)]),
    "set_runner_state": lambda store, trial: store.set_runner_state(trial, 1, "x"),
    "set_trial_metadata": lambda store, trial: store.set_trial_metadata(trial, 1, {}),
    "set_trial_progress": lambda store, trial: store.set_trial_progress(trial, 1, 0.5),
    "set_trial_total": lambda store, trial: store.set_trial_total(trial, 1, 100),
}
"""Writes of a run for the given trial."""

OF_EXPERIMENT: dict[str, Write] = {
    "delete_checkpoint": lambda store, trial: store.delete_checkpoint(f"done-{trial}"),
    "edit_checkpoint_metadata": lambda store, trial: store.edit_checkpoint_metadata(f"done-{trial}", add={"a": 1}),
    "edit_experiment": lambda store, trial: store.edit_experiment(1 + (trial == FOREIGN), notes="x"),
    "request_experiment_state": lambda store, trial: store.request_experiment_state(
        1 + (trial == FOREIGN), State.PAUSED
    ),
    "request_trial_end": lambda store, trial: store.request_trial_end(trial),
}
"""Writes in an experiment for the given trial."""


@pytest.mark.parametrize("name", OF_RUN)
def test_a_worker_writes_to_its_own_run_only(worker: TrackingStore, name: str) -> None:
    for other in (SISTER, FOREIGN):
        with pytest.raises(TrackingError, match=f"^run 1 of trial 1 may call {name} only for .*its own trial and run$"):
            OF_RUN[name](worker, other)
    OF_RUN[name](worker, OWN)


@pytest.mark.parametrize("name", OF_EXPERIMENT)
def test_a_worker_writes_to_its_own_experiment_only(worker: TrackingStore, name: str) -> None:
    with pytest.raises(TrackingError, match=f"^run 1 of trial 1 may call {name} only for .*its own experiment$"):
        OF_EXPERIMENT[name](worker, FOREIGN)
    for trial in (SISTER, OWN):
        OF_EXPERIMENT[name](worker, trial)


def test_a_worker_writes_nothing_for_another_run_of_its_trial(worker: TrackingStore, direct: TrackingStore) -> None:
    direct.start_run(OWN, allocation_id="b")
    for write in (
        lambda: worker.report_metrics([report(OWN, 2)]),
        lambda: worker.set_trial_progress(OWN, 2, 0.5),
        lambda: complete(worker, OWN, 2),
    ):
        with pytest.raises(TrackingError, match="its own trial and run"):
            write()
    with pytest.raises(StaleRun, match="the newest is run 2"):
        worker.report_metrics([report(OWN)])


def test_methods_of_runners_are_refused_with_a_list_of_the_others(worker: TrackingStore, direct: TrackingStore) -> None:
    before = direct.experiments(), direct.trials(1)
    with pytest.raises(TrackingError, match=r"^run 1 of trial 1 may not call start_run; a worker may call .*, trials$"):
        worker.start_run(OWN, allocation_id="b")
    for write in (
        lambda: worker.delete_experiment(1),
        lambda: worker.set_trial_state(OWN, State.COMPLETED),
        lambda: worker.acquire_lease(1, "me", seconds=5),
        lambda: worker.create_experiment(config={}),
        lambda: worker.forget_search(1),
    ):
        with pytest.raises(TrackingError, match="may not call"):
            write()
    assert (direct.experiments(), direct.trials(1)) == before


def test_a_worker_reads_everything_and_maintains_models(worker: TrackingStore, direct: TrackingStore) -> None:
    assert worker.trial(FOREIGN) == direct.trial(FOREIGN)
    assert worker.checkpoints(states=list(CheckpointState)) == direct.checkpoints(states=list(CheckpointState))
    assert worker.create_model("m") == direct.model("m")
    assert worker.add_model_version("m", f"done-{FOREIGN}").version == 1
    worker.delete_model("m")


def test_a_worker_marks_any_checkpoint_as_damaged(worker: TrackingStore, direct: TrackingStore) -> None:
    """A trial may start from a checkpoint of another experiment."""
    worker.fail_checkpoint(f"done-{FOREIGN}", "w is missing")
    assert direct.checkpoint(f"done-{FOREIGN}").state is CheckpointState.ERROR


def test_unknown_records_are_reported_as_such(worker: TrackingStore) -> None:
    with pytest.raises(RecordNotFound, match="there is no checkpoint x"):
        worker.delete_checkpoint("x")
    with pytest.raises(RecordNotFound, match="there is no trial 9"):
        worker.request_trial_end(9)
