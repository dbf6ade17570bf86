"""Launcher that simulates a cluster with nodes, a queue and faults, which are drawn from a seed.

The workers are generators instead of processes. They reach the tracking store through `LaunchRequest.call`, save
checkpoints to the storage, and start from those that the runner names, as the workers of trials do. For the runner,
there is no difference.
"""

from __future__ import annotations

import heapq
import itertools
import json
import random
import tempfile
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import det_core
from det_core import storage
from det_core.config import Block
from det_core.core import open_storage_block
from det_core.errors import LaunchDelayed
from det_core.interfaces.launcher import Allocation, Cause, Exit, Launcher, LaunchRequest, Phase, Status
from det_core.interfaces.records import TRAINING_STATE, MetricsReport
from det_core.interfaces.tracking import TrackingStore
from det_core.specs import LauncherSpec
from det_core.tracking.remote import open_remote_store

METRIC = "validation_loss"
THREADS = 8
"""Number of threads that run all workers."""


class Fate(NamedTuple):
    """Fault of a launch."""

    exit: Exit
    asks: bool = False
    """Whether the engine asks the workers to stop, so that they save a checkpoint. Otherwise it kills them."""
    whole_node: bool = False
    """Whether all launches of the node end in this way."""


FATES = {
    "not_started": Fate(Exit(code=1, cause=Cause.NOT_STARTED, message="no image")),
    "preempted": Fate(Exit(code=0, cause=Cause.PREEMPTED, message="by job 1"), asks=True),
    "evicted": Fate(Exit(code=-9, cause=Cause.PREEMPTED, message="by job 2")),
    "time_limit": Fate(Exit(code=0, cause=Cause.TIME_LIMIT), asks=True),
    "node_lost": Fate(Exit(code=1, cause=Cause.NODE_LOST, message="no heartbeat"), whole_node=True),
    "canceled": Fate(Exit(code=-15, cause=Cause.CANCELED, message="by root")),
    "out_of_memory": Fate(Exit(code=-9, cause=Cause.OUT_OF_MEMORY)),
    "failure": Fate(Exit(code=1)),
}
DELAYED = "delayed"
"""Fault of a launch that `Launcher.start` refuses for now."""


class SimulatedConfig(Block):
    """Cluster, whose times are in seconds."""

    seed: int = 0
    nodes: int = 32
    slots_per_node: int = 8
    start_seconds: float = 0.02
    batch_seconds: float = 0.01
    fault_rate: float = 0.0
    """Probability that a launch has a fault."""
    faulty_launches: int = 4
    """Number of launches of each trial that may have a fault. The later ones have none."""


@dataclass
class Journal:
    """Everything that happened on the simulated clusters of this process."""

    launches: Counter[str] = field(default_factory=Counter)
    """Number of launches of each trial."""
    ends: defaultdict[str, list[Exit]] = field(default_factory=lambda: defaultdict(list))
    """Ends of the launches of each trial."""
    running: set[str] = field(default_factory=set)
    """Trials whose workers run now."""
    most_running: int = 0
    twice: list[str] = field(default_factory=list)
    """Trials that were started while they were running."""
    calls: Counter[str] = field(default_factory=Counter)
    """Number of calls of the tracking store by workers."""
    call_bytes: int = 0
    worker_seconds: float = 0.0
    """CPU time of the simulation itself, without that of the calls of the tracking store."""
    errors: list[str] = field(default_factory=list)


journal = Journal()
_lock = threading.Lock()
"""Lock of the journal and of the queue of each cluster."""


@det_core.hookimpl
def det_launchers() -> Iterator[LauncherSpec]:
    yield LauncherSpec(
        name="simulated", target=f"{__name__}:SimulatedLauncher", config_model=f"{__name__}:SimulatedConfig"
    )


def training_loss(seed: int, batches: int) -> float:
    """Return the validation loss of a trial. A trial that is better than another is so at each length."""
    weight = 0.0
    for batch in range(batches):
        weight = train_batch(seed, batch, weight)
    return 1 / (1 + weight)


def train_batch(seed: int, batch: int, weight: float) -> float:
    """Return the weight after a batch, which depends on all batches before."""
    return weight + _quality(seed) / (batch + 1)


@cache
def _quality(seed: int) -> float:
    return random.Random(seed).random()


class SimulatedLauncher(Launcher):
    """Cluster with a queue. Its threads end when nothing is left to do."""

    def __init__(self, config: SimulatedConfig) -> None:
        self.config = config
        self._free = {f"node{number}": config.slots_per_node for number in range(config.nodes)}
        self._queue: list[tuple[int, datetime, int, SimulatedAllocation]] = []
        self._steps: list[tuple[float, int, SimulatedAllocation]] = []
        """Next steps of the launches that have slots, by time."""
        self._on_nodes: set[SimulatedAllocation] = set()
        self._changed = threading.Condition(_lock)
        self._numbers = itertools.count()
        self._threads = 0

    def device(self) -> Literal["cpu", "cuda"]:
        return "cpu"

    def start(self, request: LaunchRequest) -> Allocation:
        with _lock:
            number = journal.launches[request.key]
            journal.launches[request.key] += 1
            trial = request.info["trial.json"]["trial_id"]
            chance = random.Random(f"{self.config.seed} {trial} {number}")
            faulty = number < self.config.faulty_launches and chance.random() < self.config.fault_rate
            fate = chance.choice([*FATES, DELAYED]) if faulty else ""
            if fate == DELAYED:
                raise LaunchDelayed("the engine does not respond")
            launch = SimulatedAllocation(self, request, f"job {next(self._numbers)}", fate, chance.random())
            heapq.heappush(self._queue, (request.priority, request.submitted, next(self._numbers), launch))
            self._fill_slots()
            while self._threads < THREADS:
                self._threads += 1
                threading.Thread(target=self._run_steps, name="simulated-node", daemon=True).start()
        return launch

    def release(self, launch: SimulatedAllocation) -> None:
        """Give the slots of a launch that has ended to others."""
        with _lock:
            if launch in self._on_nodes:
                self._on_nodes.remove(launch)
                self._free[launch.node] += launch.request.slots
                journal.running.remove(launch.request.key)
            self._fill_slots()
            self._changed.notify_all()

    def _fill_slots(self) -> None:
        while self._queue:
            launch = self._queue[0][-1]
            node = max(self._free, key=lambda name: self._free[name])
            if launch.exit is None:
                if self._free[node] < launch.request.slots:
                    return
                self._occupy(launch, node)
            heapq.heappop(self._queue)

    def _occupy(self, launch: SimulatedAllocation, node: str) -> None:
        key = launch.request.key
        if key in journal.running:
            journal.twice.append(key)
        journal.running.add(key)
        journal.most_running = max(journal.most_running, len(journal.running))
        self._free[node] -= launch.request.slots
        self._on_nodes.add(launch)
        launch.node, launch.phase = node, Phase.STARTING
        self._plan(launch, self.config.start_seconds)

    def _plan(self, launch: SimulatedAllocation, seconds: float) -> None:
        heapq.heappush(self._steps, (time.monotonic() + seconds, next(self._numbers), launch))
        self._changed.notify()

    def _run_steps(self) -> None:
        while (launch := self._next_launch()) is not None:
            cpu, called = time.thread_time(), launch.call_seconds
            try:
                seconds = launch.advance()
            except Exception as error:  # noqa: BLE001  (the test reads it)
                journal.errors.append(f"{launch.request.key}: {error!r}")
                launch.finish(Exit(code=1))
                seconds = None
            used = time.thread_time() - cpu - (launch.call_seconds - called)
            with _lock:
                journal.worker_seconds += used
                if seconds is not None:
                    self._plan(launch, seconds)
                neighbors = [one for one in self._on_nodes if one.node == launch.node] if launch.lost_node else []
            for one in neighbors:
                one.finish(FATES["node_lost"].exit)

    def _next_launch(self) -> SimulatedAllocation | None:
        """Wait for the time of the next step. Return None if nothing is left to do."""
        with _lock:
            while True:
                if not self._on_nodes:
                    self._threads -= 1
                    return None
                left = self._steps[0][0] - time.monotonic() if self._steps else 1.0
                if self._steps and left <= 0:
                    return heapq.heappop(self._steps)[-1]
                self._changed.wait(left)


class SimulatedAllocation(Allocation):
    """Launch on the simulated cluster."""

    def __init__(
        self, cluster: SimulatedLauncher, request: LaunchRequest, job: str, fate: str, strikes_at: float
    ) -> None:
        self.request = request
        self.node = ""
        self.phase = Phase.QUEUED
        self.exit: Exit | None = None
        self.call_seconds = 0.0
        """CPU time of calls of the tracking store."""
        self.lost_node = False
        self._cluster = cluster
        self._job = job
        self._fate = fate
        self._strikes_at = strikes_at
        self._stops: Exit | None = None
        """End after the checkpoint for which the workers have been asked."""
        self._steps = self._work()
        self._advancing = threading.Lock()
        self._ended = threading.Event()

    def wait(self, timeout: float) -> Exit | None:
        self._ended.wait(timeout)
        return self.exit

    def status(self) -> Status:
        if self.phase is Phase.QUEUED:
            return Status(phase=self.phase, handle=self._job, message="Resources")
        return Status(phase=self.phase, nodes=(self.node,), handle=self._job)

    def preempt(self) -> None:
        self._stops = self._stops or Exit(code=0)
        with self._advancing:
            if self.phase is not Phase.RUNNING:
                self._finish(Exit(code=1, cause=Cause.NOT_STARTED, message="it was withdrawn"))

    def kill(self) -> None:
        self.finish(Exit(code=-9))

    def close(self) -> None:
        assert self.exit is not None

    def finish(self, end: Exit) -> None:
        """End the launch between two steps of its workers, unless it has ended."""
        with self._advancing:
            self._finish(end)

    def advance(self) -> float | None:
        """Take the next step, and return the number of seconds until the one after, or None if there is none."""
        with self._advancing:
            if self.exit:
                return None
            try:
                return next(self._steps)
            except StopIteration as stop:
                self._finish(stop.value)
                return None

    def _finish(self, end: Exit) -> None:
        if self.exit is None:
            self.exit = end
            self._steps.close()
            journal.ends[self.request.key].append(end)
            self._cluster.release(self)
            self._ended.set()

    def _call(self, method: str, body: bytes) -> bytes:
        cpu = time.thread_time()
        answer = self.request.call(method, body)
        self.call_seconds += time.thread_time() - cpu
        with _lock:
            journal.calls[method] += 1
            journal.call_bytes += len(body) + len(answer)
        return answer

    def _work(self) -> Iterator[float]:
        """Do what the workers of a trial do. Yield the seconds until each next step, and return the end."""
        if self._fate == "not_started":
            return FATES[self._fate].exit
        self.phase = Phase.RUNNING
        trial = self.request.info["trial.json"]
        worker = Worker(open_remote_store(self._call, url="agent:"), trial, self.request.info["cluster.json"])
        self.request.log(0, "stdout", f"trains from batch {worker.batch}")
        yield from worker.start()
        strikes_after = worker.batch + max(worker.period, round(self._strikes_at * (worker.length - worker.batch)))
        while worker.batch < worker.length and not self._stops:
            yield self._cluster.config.batch_seconds
            worker.train()
            if self._fate and worker.batch >= strikes_after:
                fate = FATES[self._fate]
                if not fate.asks:
                    self.lost_node = fate.whole_node
                    return fate.exit
                self._stops = self._stops or fate.exit
        if worker.batch == worker.length:
            yield from worker.complete()
            return Exit(code=0)
        yield from worker.save()
        worker.store.acknowledge_preemption(trial["trial_id"], trial["trial_run_id"])
        return self._stops


class Worker:
    """Only worker of a trial, which reports and saves as `det_core.trial.TrialLoop` does."""

    def __init__(self, store: TrackingStore, trial: dict[str, Any], cluster: dict[str, Any]) -> None:
        self.store = store
        self._ids = {"trial_id": trial["trial_id"], "run_id": trial["trial_run_id"]}
        self._seed: int = trial["trial_seed"]
        self._block = trial["config"]["checkpoint_storage"]
        self.period: int = trial["config"]["scheduling_unit"]
        self._storage = _open_storage(json.dumps(self._block))
        operation = store.searcher_operation(trial["trial_id"])
        assert operation is not None
        self.length = operation.length
        self._completed = operation.completed
        self.batch: int = 0
        self._weight = 0.0
        if latest := cluster["latest_checkpoint"]:
            with tempfile.TemporaryDirectory() as directory:
                storage.restore_checkpoint(self._storage, latest, Path(directory))
                self.batch, self._weight = json.loads((Path(directory) / "state.json").read_text())
        assert self.batch == trial["steps_completed"]

    def start(self) -> Iterator[float]:
        yield 0.0
        self.store.set_trial_total(**self._ids, batches=self.length)
        self.store.set_runner_state(**self._ids, status=TRAINING_STATE)

    def train(self) -> None:
        self._weight = train_batch(self._seed, self.batch, self._weight)
        self.batch += 1
        if self.batch % self.period == 0:
            self._report("training", {"loss": 1 / (1 + self._weight)})
            self.store.set_trial_progress(**self._ids, progress=self.batch / self.length)

    def complete(self) -> Iterator[float]:
        if not self._completed:
            loss = 1 / (1 + self._weight)
            self._report("validation", {METRIC: loss})
            yield from self.save()
            self.store.complete_searcher_operation(**self._ids, length=self.length, metric=loss)
        yield 0.0

    def save(self) -> Iterator[float]:
        """Save a checkpoint. The worker may be killed after each step."""
        name = str(uuid.uuid4())
        self.store.begin_checkpoint(name, **self._ids, storage=self._block)
        yield 0.0
        with tempfile.TemporaryDirectory() as directory:
            (Path(directory) / "state.json").write_text(json.dumps([self.batch, self._weight]))
            files = storage.scan_directory(Path(directory))
            metadata = {"steps_completed": self.batch}
            resources = storage.save_checkpoint(self._storage, name, files, metadata)
        yield 0.0
        self.store.complete_checkpoint(
            name, run_id=self._ids["run_id"], steps_completed=self.batch, resources=resources, metadata=metadata
        )

    def _report(self, group: str, metrics: dict[str, float]) -> None:
        report = MetricsReport(
            **self._ids, group=group, steps_completed=self.batch, metrics=metrics, time=datetime.now(timezone.utc)
        )
        self.store.report_metrics([report])


@cache
def _open_storage(block: str) -> Any:
    return open_storage_block(json.loads(block))
