"""A search with random faults has the same results as one without faults."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from det_testing import campaign_seeds

from det_core.cli.commands._checkpoint_orphans import find_orphans
from det_core.config import parse_config
from det_core.interfaces.records import CheckpointRecord, CheckpointState, ExperimentRecord, State
from det_core.interfaces.search_method import Create
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import submit_experiment
from det_core.scratch import scratch_directory
from det_core.search.method_selection import open_search_method
from det_core.tracking import open_store

from ..waiting import wait_for
from .conftest import Databases
from .faults import FAULTS
from .rounds import Round, run

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.campaign, pytest.mark.timeout(400)]

SEEDS = campaign_seeds(few=1, many=200)
TRIALS, LENGTH, BOUNDARY = 4, 12, 2
"""Number of trials, their length in batches, and the number of batches between two checkpoints."""
SPACE: dict[str, dict[str, Any]] = {
    "x": {"type": "int", "minval": 0, "maxval": 1},
    "y": {"type": "double", "minval": 0.0, "maxval": 1.0},
}
GRID = {name: {**space, "count": 2} for name, space in SPACE.items()}
SEARCHES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"name": "random", "max_trials": TRIALS}, SPACE),
    ({"name": "grid"}, GRID),
]

TRIAL = """
import fcntl
import time
import det_core as det
from det_toy import ToyTrial

class T(ToyTrial):
    def __init__(self, context):
        super().__init__(context)
        self.lock = open({place!r} + f".{{det.get_cluster_info().trial.trial_id}}", "w")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            open({place!r} + ".twice", "w").close()

    def on_batch(self, batch):
        time.sleep(0.05)
"""


class Course:
    """Expected results of an undisturbed toy trial."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        self.weights = [0.0]
        for _ in range(LENGTH):
            self.weights.append(self.weights[-1] + chance.gauss(0, 1))

    def loss(self, batches: int) -> float:
        return abs(self.weights[batches] - 1)

    def reports(self) -> list[tuple[str, int, Any, Any]]:
        """Return group, number of batches, metrics and metrics of each batch for every report."""
        reports: list[tuple[str, int, Any, Any]] = []
        for first, end in pairwise(range(0, LENGTH + 1, BOUNDARY)):
            rows = [{"loss": weight} for weight in self.weights[first + 1 : end + 1]]
            reports.append(("training", end, {"loss": sum(row["loss"] for row in rows) / len(rows)}, rows))
        validated = range(2 * BOUNDARY, LENGTH + 1, 2 * BOUNDARY)
        reports += [("validation", end, {"validation_loss": self.loss(end)}, None) for end in validated]
        return sorted(reports, key=lambda report: report[1])


def new_experiment(store: TrackingStore, seed: int, disk: Path, context_dir: Path) -> ExperimentRecord:
    chance = random.Random(seed)
    (context_dir / "model_def.py").write_text(TRIAL.format(place=str(context_dir.parent / "trial")))
    searcher, space = chance.choice(SEARCHES)
    config = {
        "name": f"seed {seed}",
        "entrypoint": "model_def:T",
        "searcher": {**searcher, "metric": "validation_loss", "max_length": {"batches": LENGTH}},
        "hyperparameters": space,
        "launcher": {"type": "local", "slots": 2},
        "scheduling_unit": 2 * BOUNDARY,
        "min_checkpoint_period": {"batches": BOUNDARY},
        "min_validation_period": {"batches": 2 * BOUNDARY},
        "max_restarts": 20,
        "reproducibility": {"experiment_seed": seed},
        "checkpoint_storage": {
            "type": "directory",
            "container_path": str(disk / "checkpoints"),
            "save_experiment_best": chance.randint(0, 2),
            "save_trial_best": chance.randint(0, 2),
            "save_trial_latest": chance.randint(1, 3),
        },
    }
    return submit_experiment(store, parse_config(config), context_dir)


def plan(seed: int) -> list[tuple[int, str]]:
    """Draw one to four faults, each with the number of batches at which it happens.

    Seven consecutive seeds draw all faults.
    """
    chance, names = random.Random(seed), list(FAULTS)
    drawn = [names[seed % len(names)], *chance.choices(names, k=chance.randint(0, 3))]
    chance.shuffle(drawn)
    return list(zip(sorted(chance.choices(range(TRIALS * LENGTH - BOUNDARY), k=len(drawn))), drawn, strict=True))


@pytest.mark.parametrize("seed", SEEDS)
def test_faults_do_not_change_results(
    seed: int,
    det_home: Path,
    disk: Path,
    temporary_directory: Path,
    context_dir: Path,
    database: Databases,
) -> None:
    kind = ("sqlite", "postgresql")[seed % 2]
    faults = plan(seed)
    url, server = database(kind)
    with open_store(url) as store:
        experiment = new_experiment(store, seed, disk, context_dir)
        attacked = Round(store, experiment.id, det_home, disk, temporary_directory, server, random.Random(seed))
        try:
            run(attacked, [(batches, FAULTS[name]) for batches, name in faults])
            assert_undisturbed(attacked, seed, context_dir)
            assert_kept_as_promised(attacked, seed)
            assert_nothing_is_left(attacked)
        finally:  # pytest shows it if the test failed
            print(f"seed {seed} on {kind}; to repeat it: DET_SOAK={seed}:{seed + 1} pytest tests/faults")
            print_story(attacked)


def assert_undisturbed(attacked: Round, seed: int, context_dir: Path) -> None:
    """Compare trials, metrics and weights with those of an undisturbed search with this seed."""
    store = attacked.store
    assert not (context_dir.parent / "trial.twice").exists(), "a trial ran twice at once"
    with open_search_method(parse_config(store.experiment(attacked.experiment_id).config), context_dir) as method:
        created = {action.request_id: action.hparams for action in method.start() if isinstance(action, Create)}
    trials = store.trials(attacked.experiment_id)
    assert {trial.request_id: trial.hparams for trial in trials} == created
    assert len(trials) == TRIALS
    assert {(trial.state, trial.steps_completed) for trial in trials} == {(State.COMPLETED, LENGTH)}
    for trial in trials:
        course = Course(seed + trial.request_id)
        reports = [(one.group, one.steps_completed, one.metrics, one.batch_metrics) for one in store.metrics(trial.id)]
        assert sorted(reports, key=lambda report: (report[1], report[0])) == course.reports()
        for row in store.checkpoints(trial_id=trial.id):
            if row.uuid not in attacked.damaged:
                saved = json.loads((attacked.checkpoints / row.uuid / "toy.json").read_text())
                assert saved["weight"] == course.weights[row.steps_completed or 0]
                assert saved["batch"] == row.steps_completed


def assert_kept_as_promised(attacked: Round, seed: int) -> None:
    """Compare the checkpoints with what the retention policy keeps."""
    store = attacked.store
    policy = store.experiment(attacked.experiment_id).config["checkpoint_storage"]
    every = store.checkpoints(experiment_id=attacked.experiment_id, states=list(CheckpointState))
    seeds = {trial.id: seed + trial.request_id for trial in store.trials(attacked.experiment_id)}
    found_damaged = {row.uuid for row in every if row.state is CheckpointState.ERROR}
    assert found_damaged <= attacked.damaged
    rows = [row for row in every if row.steps_completed is not None and row.uuid not in found_damaged]
    kept = {row.uuid for row in rows if row.state is CheckpointState.COMPLETED}
    assert kept == retained(rows, policy, seeds)


def retained(rows: Sequence[CheckpointRecord], policy: dict[str, Any], seeds: dict[int, int]) -> set[str]:
    """Return the checkpoints that a policy keeps, computed independently of det."""

    def loss(row: CheckpointRecord) -> float:
        return Course(seeds[row.trial_id]).loss(row.steps_completed or 0)

    validated = sorted((row for row in rows if row.steps_completed in range(0, LENGTH + 1, 2 * BOUNDARY)), key=loss)
    of_trial: dict[int, list[CheckpointRecord]] = defaultdict(list)
    for row in rows:
        of_trial[row.trial_id].append(row)
    keep = validated[: policy["save_experiment_best"]]
    for trial_id, its_rows in of_trial.items():
        keep += [row for row in validated if row.trial_id == trial_id][: policy["save_trial_best"]]
        keep += sorted(its_rows, key=lambda row: row.steps_completed or 0)[-policy["save_trial_latest"] :]
    return {row.uuid for row in keep}


def assert_nothing_is_left(attacked: Round) -> None:
    """Check that neither processes nor files are left behind."""
    wait_for(lambda: not attacked.processes())
    for orphan in find_orphans(attacked.store, timedelta(0)).found:  # as `det checkpoint gc --orphans` does
        orphan.remove()
    trials = [trial.id for trial in attacked.store.trials(attacked.experiment_id)]
    states = [CheckpointState.COMPLETED, CheckpointState.ERROR]
    rows = attacked.store.checkpoints(experiment_id=attacked.experiment_id, states=states)
    stored = {path.name for path in attacked.checkpoints.iterdir()} - {attacked.store.cluster_id}
    assert stored <= {row.uuid for row in rows}
    assert {row.uuid for row in rows} - stored <= attacked.damaged
    logs = [line.log for trial_id in trials for line in attacked.store.logs(trial_id)]
    for parent in (attacked.temporary, attacked.home / "runs"):
        with scratch_directory("next", parent):
            pass  # removes those of killed processes
        for left in parent.iterdir():
            assert any(f"were not stored are left in {left}" in line for line in logs), left


def print_story(attacked: Round) -> None:
    """Print the faults as they happened, and what the trials logged."""
    print(*attacked.story, sep="\n")
    for trial in attacked.store.trials(attacked.experiment_id):
        print(*(f"{trial.id}: {line.log}" for line in attacked.store.logs(trial.id)), sep="\n")
