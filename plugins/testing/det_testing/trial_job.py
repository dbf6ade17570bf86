"""Trials that train in processes like those that a runner starts, one run after another, on one or more slots."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from det_core.config import parse_config
from det_core.interfaces.records import CheckpointRecord
from det_core.interfaces.tracking import TrackingStore
from det_testing.runs import begin_run, worker_environment

if TYPE_CHECKING:
    from typing_extensions import Self

SEED = 5
"""Seed of the trials of all jobs."""
BATCHES = 14
"""Number of batches that a job trains."""
REPORTS = [3, 4, 6, 7, 8, 9, 12, 14]
"""Steps at which training metrics are reported, including those of every validation and checkpoint."""
JOB_CONFIG: dict[str, Any] = {
    "searcher": {"name": "single", "metric": "validation_loss", "max_length": {"batches": BATCHES}},
    "scheduling_unit": 4,
    "min_validation_period": {"batches": 7},
    "min_checkpoint_period": {"batches": 3},
    "checkpoint_policy": "none",
    "perform_initial_validation": True,
    "records_per_epoch": 48,
}
"""Config keys that are the same for all jobs."""
_WORKER = ["-m", "det_core.launch.worker"]


@dataclass(frozen=True)
class InjectedFailure:
    """Failure of one worker.

    Args:
        how: ``kill``, or another failure that the job's trial implements.
        rank: rank of the worker.
        batches: number of batches after which it fails.
    """

    how: str
    rank: int
    batches: int


@dataclass(frozen=True)
class NodeLaunch:
    """Differences in how one node is launched.

    Args:
        prefix: words before the launch command.
        arguments: further arguments of the launch command.
    """

    prefix: Sequence[str] = ()
    arguments: Sequence[str] = ()


class TrialJob:
    """One trial, and the processes that train it.

    Args:
        store: tracking store.
        directory: directory for the files of all jobs.
        config: config without lengths and periods, which are the same for all jobs.
        code: directory of the entrypoint. The trial reads a `InjectedFailure` from ``FAIL="HOW RANK BATCHES"``.
        weights: reads the weights from a checkpoint's directory.
        limit: time limit of one run in seconds.
        forked: words that make a Python command a fork, as from `run_fork_server`. Workers are forks if none of them is
            to be killed and all are of this host.
    """

    def __init__(
        self,
        store: TrackingStore,
        directory: Path,
        config: Mapping[str, Any],
        *,
        code: Path,
        weights: Callable[[Path], Any],
        limit: float,
        forked: Sequence[str] = (),
    ) -> None:
        self._store, self._code, self._weights, self._limit, self._forked = store, code, weights, limit, forked
        whole, hparams = parse_config({**JOB_CONFIG, **config}).dump(), config["hyperparameters"]
        self._backend: str = config["distributed"]["backend"]
        experiment = store.create_experiment(config=whole)
        self.trial_id = store.create_trial(experiment.id, hparams=hparams, seed=SEED).id
        """Id of the trial in the tracking store."""
        self._directory = directory / str(self.trial_id)
        self._directory.mkdir()
        self._secret = secrets.token_hex(32)
        self._processes: list[subprocess.Popen[bytes]] = []

    def start_alone(self) -> Self:
        """Start training on one slot without a backend, from the latest checkpoint."""
        return self._start([[sys.executable, *_WORKER]], None)

    def start(
        self, slots: int, failure: InjectedFailure | None = None, *, nodes: Sequence[NodeLaunch] = (NodeLaunch(),)
    ) -> Self:
        """Start the workers, which train from the latest checkpoint.

        Args:
            slots: number of workers on each node.
            failure: failure of one worker, if any.
            nodes: nodes to launch.
        """
        launch = [sys.executable, "-m", "det_core.launch", self._backend, f"--slots={slots}"]
        is_real = any(node.prefix for node in nodes) or (failure and failure.how == "kill")
        worker = _WORKER if is_real else [*self._forked, *_WORKER]
        return self._start([[*node.prefix, *launch, *node.arguments, "--", *worker] for node in nodes], failure)

    def run(self, slots: int, failure: InjectedFailure) -> int:
        """Start the workers, wait for their end and return the exit code.

        Args:
            slots: number of workers.
            failure: failure of one worker.
        """
        return self.start(slots, failure)._wait()

    def ended(self) -> Self:
        """Wait for the end of training, and check that it succeeded."""
        code = self._wait()
        assert code == 0, f"exit code {code}; output:\n{self.output()}"
        return self

    def close(self) -> None:
        """End the remaining processes, which end their own child processes."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(self._limit)

    def output(self) -> str:
        """Return the end of what all runs printed."""
        return (self._directory / "output").read_text(errors="replace", encoding="utf-8")[-20_000:]

    def checkpoints(self) -> list[CheckpointRecord]:
        """Return the completed checkpoints, oldest first."""
        return self._store.checkpoints(trial_id=self.trial_id)

    def steps(self) -> int:
        """Return the number of batches trained in the latest checkpoint."""
        steps = self.checkpoints()[-1].steps_completed
        assert steps is not None
        return steps

    def weights(self) -> Any:
        """Return the weights in the latest checkpoint."""
        last = self.checkpoints()[-1]
        return self._weights(Path(last.storage["container_path"], last.uuid))

    def metrics(self, group: str) -> list[Any]:
        """Return the steps, metrics and batch metrics of every report."""
        return [
            (report.steps_completed, report.metrics, report.batch_metrics)
            for report in self._store.metrics(self.trial_id)
            if report.group == group
        ]

    def steps_of_reports(self) -> list[int]:
        """Return the steps at which training metrics were reported."""
        return [steps for steps, *_ in self.metrics("training")]

    def rows(self) -> list[dict[str, Any]]:
        """Return the metrics of every batch."""
        return [row for _, _, rows in self.metrics("training") for row in rows]

    def losses(self) -> list[float]:
        """Return the loss of every batch."""
        return [row["loss"] for row in self.rows()]

    def outcome(self) -> dict[str, Any]:
        """Return the weights and everything that was reported."""
        return {"weights": self.weights(), **{group: self.metrics(group) for group in ("training", "validation")}}

    def _start(self, commands: Sequence[Sequence[str]], failure: InjectedFailure | None) -> Self:
        begin_run(self._store, self.trial_id, self._directory)
        environment = {**os.environ, **self._environment(failure)}
        self._processes.clear()
        for command in commands:
            with (self._directory / "output").open("ab") as output:
                process = subprocess.Popen(
                    command, cwd=self._code, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
                )
            self._processes.append(process)
        return self

    @contextmanager
    def training_here(self, failure: InjectedFailure | None = None) -> Iterator[None]:
        """Begin a run, and give this process the environment of its only worker while the block runs.

        Args:
            failure: failure of the worker, if any.
        """
        begin_run(self._store, self.trial_id, self._directory)
        with worker_environment(self._environment(failure)):
            yield

    def _wait(self) -> int:
        try:
            return max((abs(process.wait(self._limit)) for process in self._processes), default=0)
        except subprocess.TimeoutExpired:
            self.close()
            raise AssertionError(f"the job did not end within {self._limit:g} s; output:\n{self.output()}") from None
        finally:
            self.close()

    def _environment(self, failure: InjectedFailure | None) -> dict[str, str]:
        return {
            "DET_HOME": str(self._directory),
            "DET_COMM_KEY": self._secret,
            "OMP_NUM_THREADS": "1",
            "DET_INFO_DIR": str(self._directory),
            **({"FAIL": f"{failure.how} {failure.rank} {failure.batches}"} if failure else {}),
        }
