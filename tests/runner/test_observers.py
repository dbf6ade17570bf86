"""Observers and preparations of launches in experiments with real processes."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from det_testing.plugin_metadata import write_plugin_metadata

from det_core.interfaces.records import ExperimentRecord, State
from det_core.interfaces.tracking import TrackingStore
from det_core.plugins import plugin_registry
from det_core.runner import ExperimentRunner
from det_core.tracking.control import request_experiment_stop

from .conftest import Submit

EXAMPLE = Path(__file__).parents[2] / "examples" / "observer_plugin" / "det_jsonl.py"
PREPARER = """
import det_core
from det_core.interfaces.launch_preparation import LaunchAdditions


@det_core.hookimpl
def det_prepare_launch(launch):
    assert "hush" not in repr(vars(launch))
    added = {"ADDED": f"run {launch.run_id}", "API_KEY": "overwritten"}
    return LaunchAdditions(env=added, wrapper=("env", "WRAPPED=1"))
"""

pytestmark = pytest.mark.integration

Lines = list[dict[str, Any]]


def install(site: Path, name: str, source: str) -> None:
    (site / f"{name}.py").write_text(source)
    write_plugin_metadata(site, name.replace("_", "-"))
    sys.modules.pop(name, None)
    plugin_registry.cache_clear()


@pytest.fixture
def observed(plugin_site: Path, new_experiment: Submit, tmp_path: Path) -> Submit:
    """Submit an experiment with the observer of the example."""
    install(plugin_site, "det_jsonl", EXAMPLE.read_text())

    def submit(body: str = "pass", **changes: Any) -> ExperimentRecord:
        block = {"jsonl": {"directory": str(tmp_path / "events"), "logs": True}}
        return new_experiment(body, observers=block, **changes)

    return submit


def run(store: TrackingStore, experiment: ExperimentRecord, **options: Any) -> State:
    return ExperimentRunner(store, experiment.id).run(**options)


def lines(tmp_path: Path, experiment: ExperimentRecord) -> Lines:
    path = tmp_path / "events" / f"experiment-{experiment.id}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def of(found: Lines, event: str, *keys: str) -> list[Any]:
    return [tuple(line[key] for key in keys) for line in found if line["event"] == event]


def test_each_event_arrives_once(store: TrackingStore, observed: Submit, tmp_path: Path) -> None:
    failed = tmp_path / "failed"
    experiment = observed(
        "def on_batch(self, batch):\n"
        f"    failed = Path({str(failed)!r})\n"
        "    if batch == 30 and self.context.get_trial_id() == 1 and not failed.exists():\n"
        "        failed.touch()\n"
        "        raise ValueError('once')",
        searcher={"name": "random", "metric": "validation_loss", "max_length": {"batches": 50}, "max_trials": 2},
        min_checkpoint_period={"batches": 20},
        environment={"environment_variables": ["API_KEY=hush"]},
    )
    assert run(store, experiment) is State.COMPLETED
    found = lines(tmp_path, experiment)
    assert of(found, "experiment_started", "resumed") == [(False,)]
    assert of(found, "experiment_finished", "state", "error") == [("COMPLETED", None)]
    runs = [(1, 1), (1, 2), (2, 1)]
    for event in ("trial_started", "worker_started", "worker_finished"):
        assert sorted(of(found, event, "trial_id", "run_id")) == runs
    assert sorted(of(found, "worker_started", "trial_id", "run_id", "steps_completed"))[1] == (1, 2, 20)
    assert Counter(of(found, "worker_finished", "error")) == {("ValueError: once",): 1, (None,): 2}
    assert sorted(of(found, "trial_finished", "trial_id", "run_id", "state")) == [
        (1, 2, "COMPLETED"),
        (2, 1, "COMPLETED"),
    ]
    for trial in store.trials(experiment.id):
        checkpoints = [each.uuid for each in store.checkpoints(trial_id=trial.id)]
        assert [
            uuid for owner, uuid in of(found, "checkpoint_saved", "trial_id", "storage_id") if owner == trial.id
        ] == checkpoints
        recorded = [line.log for line in store.logs(trial.id)]
        shown = [
            line["log"]
            for owner, batch in of(found, "logs_recorded", "trial_id", "lines")
            if owner == trial.id
            for line in batch
        ]
        assert Counter(shown) == Counter(recorded)
    reports = of(found, "metrics_reported", "trial_id", "run_id", "group", "steps_completed")
    assert len(reports) == len(set(reports)) and (2, 1, "training", 50) in reports
    assert "hush" not in json.dumps(found) and "det-secret" not in json.dumps(found)


def test_a_canceled_trial_has_finished(store: TrackingStore, observed: Submit, tmp_path: Path) -> None:
    experiment = observed("def on_batch(self, batch):\n    time.sleep(0.1)")

    def cancel() -> None:
        training = any(trial.steps_completed for trial in store.trials(experiment.id))
        if training and store.experiment(experiment.id).state is State.ACTIVE:
            request_experiment_stop(store, experiment.id, State.STOPPING_CANCELED)

    assert run(store, experiment, tick=cancel) is State.CANCELED
    found = lines(tmp_path, experiment)
    assert of(found, "trial_finished", "state") == [("CANCELED",)]
    assert of(found, "experiment_finished", "state") == [("CANCELED",)]
    assert of(found, "preemption_requested", "reason") == [("runner",)]
    assert of(found, "worker_finished", "preempted") == [(True,)]


def test_plugins_add_to_launches(
    store: TrackingStore, plugin_site: Path, new_experiment: Submit, tmp_path: Path
) -> None:
    install(plugin_site, "det_preparer", PREPARER)
    seen = tmp_path / "seen"
    experiment = new_experiment(
        "def on_batch(self, batch):\n"
        "    values = [os.environ[name] for name in ('ADDED', 'WRAPPED', 'API_KEY')]\n"
        f"    Path({str(seen)!r}).write_text(' '.join(values))",
        environment={"environment_variables": ["API_KEY=hush"]},
    )
    assert run(store, experiment) is State.COMPLETED
    assert seen.read_text() == "run 1 1 hush"
    (line,) = [line.log for line in store.logs(1) if line.log.startswith("plugin ")]
    assert line == (
        "plugin det-preparer sets ADDED, does not set API_KEY, which the config sets, "
        "wraps the command with: env WRAPPED=1"
    )


def test_a_wrong_preparation_fails_the_launch(store: TrackingStore, plugin_site: Path, new_experiment: Submit) -> None:
    install(plugin_site, "det_preparer", PREPARER.replace("return LaunchAdditions(", "return dict("))
    experiment = new_experiment()
    assert run(store, experiment) is State.ERROR
    assert "plugin det-preparer: its det_prepare_launch answers a dict; expected a" in (
        store.experiment(experiment.id).error or ""
    )
