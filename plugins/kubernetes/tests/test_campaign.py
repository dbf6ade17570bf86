"""A search whose pods, connections, runner and cluster are killed at random has the result of an undisturbed one."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
from det_testing import campaign_seeds, is_soak
from experiments import start_runner
from real_cluster import RealCluster

from det_core.config import parse_config
from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import submit_experiment

pytestmark = [pytest.mark.integration, pytest.mark.campaign, pytest.mark.timeout(900)]

_STEPS = 60
_TRIALS, _DISTURBANCES = (4, 20) if is_soak() else (2, 4)
_SECONDS = 800.0
_TRAINING_SECONDS = 30.0
"""Seconds to wait until a trial trains."""
_TICK = 0.2
_SCRIPT = f"""
import fcntl, json, os, time
import det_core as det

info = det.get_cluster_info()
shared = info.trial.hparams["shared"]
lock = open(os.path.join(shared, f"trial-{{info.trial.trial_id}}"), "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    open(os.path.join(shared, "twice"), "a").write(f"trial {{info.trial.trial_id}}\\n")
with det.core.init() as core_context:
    step, value = 0, info.trial.hparams["start"]
    if info.latest_checkpoint:
        with core_context.checkpoint.restore_path(info.latest_checkpoint) as path:
            step, value = json.loads((path / "state").read_text())

    def save():
        with core_context.checkpoint.store_path({{"steps_completed": step}}) as (path, _):
            (path / "state").write_text(json.dumps([step, value]))

    while step < {_STEPS}:
        step, value = step + 1, value / 2 + step
        core_context.train.report_training_metrics(steps_completed=step, metrics={{"value": value}})
        time.sleep(0.2)
        if step % 5 == 0:
            save()
        if core_context.preempt.should_preempt():
            save()
            raise SystemExit
    core_context.train.report_validation_metrics(steps_completed=step, metrics={{"loss": value}})
    save()
"""


class _Search:
    """Search in a process of its own, which is started again until it has completed."""

    def __init__(self, store: TrackingStore, directory: Path, environment: Mapping[str, Any]) -> None:
        code, shared = directory / "code", directory / "shared"
        code.mkdir()
        shared.mkdir()
        (code / "main.py").write_text(_SCRIPT, encoding="utf-8")
        config = {
            "entrypoint": "python3 main.py",
            "hyperparameters": {"shared": str(shared), "start": {"type": "double", "minval": 0.0, "maxval": 1.0}},
            "searcher": {
                "name": "random",
                "metric": "loss",
                "max_trials": _TRIALS,
                "max_concurrent_trials": 2,
                "max_length": {"batches": _STEPS},
            },
            "reproducibility": {"experiment_seed": 7},
            "launcher": {"type": "kubernetes", "resources": {"cpu": "500m"}, "reconnect_timeout": 60},
            "environment": dict(environment),
            "checkpoint_storage": {"type": "directory", "container_path": str(directory / "checkpoints")},
        }
        self.store, self.shared = store, shared
        self.id = submit_experiment(store, parse_config(config), code).id
        self.runner = start_runner(self.id)

    @property
    def state(self) -> State:
        return self.store.experiment(self.id).state

    def keep_running(self) -> None:
        """Start the runner again if it has ended before its experiment."""
        if self.runner.poll() is not None and self.state is not State.COMPLETED:
            self.runner = start_runner(self.id)

    def kill_runner(self) -> None:
        self.runner.kill()
        self.runner.wait()

    def kill_runner_in_training(self) -> None:
        """Kill the runner just after a trial has trained, and start the next one, which can adopt it."""
        deadline = time.monotonic() + _TRAINING_SECONDS
        before = self._count_batches()
        while (now := self._count_batches()) <= before and self.runner.poll() is None and time.monotonic() < deadline:
            before = now
            time.sleep(_TICK)
        self.kill_runner()

    def kill_connection(self, rng: random.Random) -> None:
        """Kill a command that connects the runner with an agent."""
        try:
            commands = [one for one in psutil.Process(self.runner.pid).children() if "agent" in " ".join(one.cmdline())]
            if commands:
                rng.choice(commands).kill()
        except psutil.NoSuchProcess:
            pass  # the runner has just ended

    def require_undisturbed_result(self) -> None:
        """Fail unless each trial has trained each batch once, by one process at a time."""
        assert not (self.shared / "twice").exists(), (self.shared / "twice").read_text(encoding="utf-8")
        trials = self.store.trials(self.id)
        assert [trial.state for trial in trials] == [State.COMPLETED] * _TRIALS
        for trial in trials:
            values = [trial.hparams["start"]]
            for step in range(_STEPS):
                values.append(values[-1] / 2 + step)
            reports = self.store.metrics(trial.id, group="training")
            assert [(one.steps_completed, one.metrics["value"]) for one in reports] == list(enumerate(values[1:], 1))
            (loss,) = self.store.metrics(trial.id, group="validation")
            assert loss.metrics["loss"] == values[-1]

    def count_adoptions(self) -> int:
        """Return how often a runner has adopted a run."""
        lines = [line.log for trial in self.store.trials(self.id) for line in self.store.logs(trial.id)]
        return sum(line.endswith("goes on with another runner") for line in lines)

    def _count_batches(self) -> int:
        return sum(trial.steps_completed for trial in self.store.trials(self.id))


@pytest.mark.parametrize("seed", campaign_seeds(1, 200))
def test_a_disturbed_search_has_the_undisturbed_result(
    store: TrackingStore, tmp_path: Path, cluster: Any, seed: int
) -> None:
    rng = random.Random(seed)
    search = _Search(store, tmp_path, cluster.environment)

    def delete_pod() -> None:
        if names := cluster.names():
            cluster.delete(rng.choice(names))

    def restart(part: str) -> None:
        cluster.kill(part)
        time.sleep(rng.uniform(0, 4))
        cluster.start(part)

    actions: dict[str, tuple[int, Callable[[], None]]] = {
        "pod deletes": (6, delete_pod),
        "connection kills": (2, lambda: search.kill_connection(rng)),
        "runner kills": (1, search.kill_runner),
        "runner kills in training": (6, search.kill_runner_in_training),
    }
    if isinstance(cluster, RealCluster):
        actions["API server kills"] = (1, lambda: restart("apiserver"))
        actions["kubelet kills"] = (1, lambda: restart("kubelet"))
    counts: Counter[str] = Counter()
    began = time.monotonic()
    deadline = began + _SECONDS
    try:
        while search.state is not State.COMPLETED:
            assert time.monotonic() < deadline, f"not completed: {search.state}, {store.experiment(search.id).error}"
            time.sleep(rng.uniform(0.5, 4))
            if sum(counts.values()) < _DISTURBANCES:
                (name,) = rng.choices(list(actions), [weight for weight, _ in actions.values()])
                counts[name] += 1
                actions[name][1]()
            search.keep_running()
        search.runner.wait(60)
    finally:
        if search.runner.poll() is None:
            search.kill_runner()
    search.require_undisturbed_result()
    counts["adoptions"] = search.count_adoptions()
    told = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    print(f"seed {seed}: {_TRIALS} trials equal, none lost, none twice; {told}; {time.monotonic() - began:.0f} s")
