"""Interface of the trials in the tracking store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from det_core.interfaces.records import (
    Machine,
    Run,
    SearcherOperationRecord,
    State,
    TrialOrder,
    TrialRecord,
    TrialResult,
)
from det_core.interfaces.tracking._rights import Reach, reads, writes


class TrialStore(ABC):
    """The part of a `TrackingStore` that handles trials, their runs, and their searcher operations."""

    @writes(is_report=True)
    @abstractmethod
    def create_trial(
        self,
        experiment_id: int,
        *,
        hparams: Mapping[str, Any],
        seed: int,
        request_id: int = 0,
        external_id: str | None = None,
        lease: str = "",
    ) -> TrialRecord:
        """Record a new QUEUED trial without runs.

        Args:
            hparams: hyperparameter names mapped to values, nested as in the config.
            seed: seed of everything random in the trial.
            request_id: id that the search method chose.
            external_id: id that the caller chose. If a trial with this id exists, it is returned unchanged.

        Returns:
            The recorded trial.
        """

    @reads
    @abstractmethod
    def trial(self, trial_id: int) -> TrialRecord:
        """Return one trial."""

    @reads
    @abstractmethod
    def trials_by_id(self, trial_ids: Collection[int], *, brief: bool = False) -> list[TrialRecord]:
        """Return those of the trials that exist, each once, in the requested order.

        Args:
            brief: as in `trial_results`.
        """

    @reads
    @abstractmethod
    def trial_running_seconds(self, trial_ids: Collection[int]) -> dict[int, float]:
        """Return for how many seconds each trial has run, without waiting and pauses."""

    @reads
    @abstractmethod
    def trials(self, experiment_id: int, *, ordered: bool = False, states: Sequence[State] = ()) -> list[TrialRecord]:
        """Return the trials of an experiment in the order of their creation.

        Args:
            ordered: include only trials that the search is waiting for.
            states: include only these states; empty for all.
        """

    @reads
    @abstractmethod
    def trial_results(
        self,
        experiment_id: int,
        *,
        trial_ids: Collection[int] | None = None,
        states: Sequence[State] = (),
        where: str = "",
        order: TrialOrder = TrialOrder.ID,
        sort_by: str = "",
        reverse: bool = False,
        limit: int | None = None,
        offset: int = 0,
        brief: bool = False,
    ) -> list[TrialResult]:
        """Return trials with the best and the latest value of the experiment's searcher metric.

        Args:
            trial_ids: include only those of these trials that exist in the experiment; None for all.
            states: include only these states; empty for all.
            where: include only trials for which this filter holds, such as ``lr < 0.01 and accuracy > 0.9``.
                `docs/cli.md` describes the language.
            order: sort key.
            sort_by: name of a value, as in filters, that replaces ``order``. The least value comes first.
            reverse: reverse the sort order. Trials without a value stay last.
            limit: maximum number of trials.
            offset: number of trials to skip.
            brief: leave out the metadata, hyperparameters of more than `LONGEST_BRIEF` characters as JSON, and the ends
                of texts that are longer than `SEARCHED`.

        Raises:
            FilterError: ``where`` is malformed, or no trial has ``sort_by``. The message names the position, or
                values that exist.
            CallTooLarge: ``where`` or ``sort_by`` takes too long.
        """

    @reads
    @abstractmethod
    def count_trials(self, experiment_id: int, *, where: str = "") -> int:
        """Return the number of trials of an experiment for which a filter holds, as in `trial_results`."""

    @writes(is_report=True)
    @abstractmethod
    def set_trial_state(self, trial_id: int, state: State, *, lease: str = "") -> None:
        """Record a state. A final one sets the end time, ends the trial's run and clears its placement.

        Other states clear the end time. A request to end (`ENDINGS`) stays until a final state or another such request
        follows.

        Raises:
            StaleRun: as in `TrackingStore.set_experiment_state`.
        """

    @writes(Reach.EXPERIMENT)
    @abstractmethod
    def request_trial_end(self, trial_id: int) -> bool:
        """Ask the runner of a trial's experiment to end the trial at once.

        Returns:
            Whether the experiment has a runner and the trial has not ended. Otherwise nothing changes.
        """

    @writes(is_report=True)
    @abstractmethod
    def count_restart(self, trial_id: int, *, lease: str = "") -> int:
        """Add one to the trial's restarts and return the new number."""

    @writes(is_report=True)
    @abstractmethod
    def count_interruption(self, trial_id: int, *, lease: str = "") -> int:
        """Add one to the trial's interruptions and return the new number."""

    @writes(is_report=True)
    @abstractmethod
    def start_run(self, trial_id: int, *, allocation_id: str, lease: str = "") -> Run:
        """Begin a new run. From now on all writes of earlier runs are refused.

        Since the new run starts from the latest completed checkpoint, ``steps_completed`` goes back to that checkpoint,
        and later metrics are archived, except those of runs before the one that saved the checkpoint. If the trial has
        completed its operation, both stay, because nothing is trained again.

        Args:
            allocation_id: id of the allocation that the processes belong to.
        """

    @writes(is_report=True)
    @abstractmethod
    def continue_run(self, trial_id: int, run_id: int, *, lease: str) -> float:
        """Record that the newest run of a trial goes on, although its runner is gone. It has no end any more.

        Args:
            lease: holder of the experiment's lease. Nobody else may continue a run.

        Returns:
            The time of the call by the store's clock, in seconds. Of two runners that have called this, that with the
            later lease has the larger one.

        Raises:
            StaleRun: the lease has another holder, the run is not the newest of the trial, or it has ended for another
                reason than the end of its runner.
        """

    @reads
    @abstractmethod
    def run(self, trial_id: int, run_id: int) -> Run:
        """Return one run of a trial."""

    @reads
    @abstractmethod
    def runs(self, trial_id: int) -> list[Run]:
        """Return all runs of a trial, oldest first."""

    @writes(is_report=True)
    @abstractmethod
    def end_run(
        self,
        trial_id: int,
        run_id: int,
        *,
        reason: str = "",
        exit_code: int | None = None,
        cause: str = "",
        slots: int | None = None,
        lease: str = "",
    ) -> None:
        """Record the end of a run's processes, and clear its placement. A run that has ended keeps its end time.

        Args:
            reason: why they ended before their work was done, in one line.
            exit_code: their exit code, negative for a signal. None if it is unknown.
            cause: what the launcher says about the end. Empty if they ended by themselves.
            slots: number of their slots. None keeps the recorded number.
        """

    @writes(Reach.RUN, is_report=True)
    @abstractmethod
    def record_machine(self, trial_id: int, run_id: int, machine: Machine) -> None:
        """Record a machine of a run. It replaces that with the same ``node``.

        Raises:
            ValueError: ``node`` is not less than `MAX_MACHINES`.
            CallTooLarge: the packages or the GPUs have more than `LARGEST_SAMPLE` characters as JSON.
        """

    @reads
    @abstractmethod
    def machines(self, trial_id: int, *, limit: int | None = None, brief: bool = False) -> dict[int, list[Machine]]:
        """Return the machines of each run of a trial that has recorded some, newest run first, in order of nodes.

        Args:
            limit: maximum number of machines.
            brief: leave out the packages.
        """

    @reads
    @abstractmethod
    def newest_machines(self, trial_ids: Collection[int]) -> dict[int, Machine]:
        """Return the machine of the chief in the newest run of each trial that has recorded one."""

    @writes(Reach.RUN, is_report=True)
    @abstractmethod
    def acknowledge_preemption(self, trial_id: int, run_id: int) -> None:
        """Record that the run stops before its work is done and expects to be started again."""

    @writes(Reach.RUN, is_report=True)
    @abstractmethod
    def report_early_exit(self, trial_id: int, run_id: int, reason: str) -> None:
        """Record that the run stops for good.

        Args:
            reason: reason as in the wire format, such as ``EXITED_REASON_INVALID_HP``.
        """

    @writes(Reach.RUN, is_report=True)
    @abstractmethod
    def set_trial_progress(self, trial_id: int, run_id: int, progress: float) -> None:
        """Record the share of the trial's present work that is done, 0 to 1.

        For an unmanaged experiment, this is also recorded as the progress of the experiment.

        Raises:
            ValueError: the share is out of range.
        """

    @writes(Reach.RUN, is_report=True)
    @abstractmethod
    def set_trial_total(self, trial_id: int, run_id: int, batches: int) -> None:
        """Record the number of batches that the trial trains in total, > 0."""

    @writes(Reach.RUN, is_report=True)
    @abstractmethod
    def set_runner_state(self, trial_id: int, run_id: int, status: str) -> None:
        """Record a short status that the trial's code reports."""

    @writes(is_report=True)
    @abstractmethod
    def set_trial_placement(self, trial_id: int, run_id: int, placement: str, *, slots: int | None = None) -> None:
        """Record the phase and place of the run's launch. The end of the run clears it.

        A run begins when its launch leaves `Phase.QUEUED`.

        Args:
            placement: phase and place. Empty before the launch, and on this machine.
            slots: number of slots of the launch. None keeps the recorded number.
        """

    @writes(Reach.RUN, is_report=True)
    @abstractmethod
    def set_trial_metadata(self, trial_id: int, run_id: int, metadata: Mapping[str, Any]) -> None:
        """Replace the trial's metadata with JSON-compatible metadata."""

    @writes(is_report=True)
    @abstractmethod
    def set_searcher_operation(self, trial_id: int, length: int, *, lease: str = "") -> None:
        """Order the trial to train up to ``length`` (> 0). An operation of the same length stays as it is."""

    @reads
    @abstractmethod
    def searcher_operation(self, trial_id: int) -> SearcherOperationRecord | None:
        """Return the operation set last, or None before the first."""

    @writes(Reach.RUN, is_report=True)
    @abstractmethod
    def complete_searcher_operation(self, trial_id: int, run_id: int, length: int, metric: float) -> None:
        """Record that the run has trained up to ``length``, with this value of the searcher's metric.

        Raises:
            TrackingError: the operation has another length, or was completed before.
        """
