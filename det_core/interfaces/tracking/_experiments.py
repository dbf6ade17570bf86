"""Interface of the experiments and of their searches in the tracking store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from det_core.interfaces.records import (
    CodeVersion,
    ExperimentRecord,
    ExperimentSummary,
    SearchEvent,
    State,
    TrialRecord,
    TrialUpdate,
)
from det_core.interfaces.tracking._rights import Reach, reads, writes


class ExperimentStore(ABC):
    """The part of a `TrackingStore` that handles experiments, and the leases of their runners."""

    @writes(creates=True)
    @abstractmethod
    def create_experiment(
        self,
        *,
        config: Mapping[str, Any],
        original_config: str = "",
        model_definition: bytes = b"",
        owner: str = "",
        unmanaged: bool = False,
        external_id: str | None = None,
        code_version: CodeVersion | None = None,
    ) -> ExperimentRecord:
        """Record a new experiment with the name, description and labels from its config.

        Args:
            config: complete, validated, JSON-compatible config with a `SECRET_REFERENCE` for each secret.
            original_config: text of the config as the user wrote it, also without secrets.
            model_definition: context directory as a gzipped tar file.
            owner: name of the user who creates it.
            unmanaged: whether a script off the cluster records it, so that no runner starts or resumes it.
            external_id: id that the caller chose. If an experiment with this id exists, it is returned unchanged.
            code_version: commit that the code comes from, or None if it is in no repository.

        Returns:
            The recorded experiment.

        Raises:
            RecordExists: the experiment with the ``external_id`` has another owner.
        """

    @reads
    @abstractmethod
    def experiment(self, experiment_id: int) -> ExperimentRecord:
        """Return one experiment."""

    @reads
    @abstractmethod
    def experiments(
        self,
        *,
        states: Sequence[State] = (),
        name: str | None = None,
        label: str | None = None,
        archived: bool | None = None,
        where: str = "",
        order: str = "id",
        sort_by: str = "",
        reverse: bool = False,
        limit: int | None = None,
        offset: int = 0,
        brief: bool = False,
    ) -> list[ExperimentRecord]:
        """Return experiments, newest first by default.

        Args:
            states: include only these states; empty for all.
            name: include only names that contain this text, ignoring case.
            label: include only experiments with this label.
            archived: include only archived (True) or only other experiments (False).
            where: include only experiments for which this filter holds together with one of their trials, such as
                ``lr < 0.01 and accuracy > 0.9``. `docs/cli.md` describes the language.
            order: sort key. ``id``, ``start_time`` and ``progress`` sort the greatest first, and ``name``, ``owner``
                and ``state`` sort alphabetically. Equal experiments are sorted newest first.
            sort_by: name of a value, as in filters, that replaces ``order``. The least value of all trials comes first,
                and experiments without one come last.
            reverse: reverse the sort order. With ``sort_by``, the greatest value of all trials comes first.
            limit: maximum number of experiments.
            offset: number of experiments to skip.
            brief: leave out the original config, the ends of texts that are longer than `SEARCHED`, and all of a config
                of more than `LONGEST_BRIEF` characters but the searcher's metric, length and source, the storage of
                checkpoints, the project and the workspace.

        Raises:
            ValueError: ``order`` is unknown.
            FilterError: ``where`` is malformed, or no trial has ``sort_by``. The message names the position, or
                values that exist.
            CallTooLarge: ``where`` or ``sort_by`` takes too long.
        """

    @reads
    @abstractmethod
    def count_experiments(
        self,
        *,
        states: Sequence[State] = (),
        name: str | None = None,
        label: str | None = None,
        archived: bool | None = None,
        where: str = "",
    ) -> int:
        """Return the number of experiments that `experiments` returns with the same arguments."""

    @reads
    @abstractmethod
    def experiments_by_id(self, experiment_ids: Collection[int], *, brief: bool = False) -> list[ExperimentRecord]:
        """Return those of the experiments that exist, in the order of their ids.

        Args:
            brief: as in `experiments`.
        """

    @reads
    @abstractmethod
    def code_versions(self, experiment_ids: Collection[int]) -> dict[int, CodeVersion]:
        """Return the commits that the code of experiments comes from, of those that have recorded one."""

    @reads
    @abstractmethod
    def experiment_summaries(self, experiment_ids: Collection[int]) -> dict[int, ExperimentSummary]:
        """Return the numbers that lists show next to the records of experiments, in the requested order."""

    @reads
    @abstractmethod
    def running_seconds(self, experiment_ids: Collection[int]) -> dict[int, float]:
        """Return for how many seconds at least one trial of each experiment has run, without waiting and pauses."""

    @writes(Reach.EXPERIMENT)
    @abstractmethod
    def edit_experiment(
        self,
        experiment_id: int,
        *,
        name: str | None = None,
        description: str | None = None,
        notes: str | None = None,
        project: str | None = None,
        workspace: str | None = None,
        add_labels: Sequence[str] = (),
        remove_labels: Sequence[str] = (),
        archived: bool | None = None,
    ) -> ExperimentRecord:
        """Change texts and labels that users maintain. None leaves a value unchanged.

        Args:
            project: name of the project, which the config has.
            workspace: name of the workspace of the project.
            add_labels: labels to append, unless the experiment has them.
            remove_labels: labels to remove. Labels that the experiment lacks are ignored.

        Returns:
            The experiment after the change.

        Raises:
            TrackingError: it would have more than `MAX_LABELS` labels, or one longer than `LONGEST_LABEL`.
        """

    @writes(needs_owner=True)
    @abstractmethod
    def delete_experiment(self, experiment_id: int, *, lease: str = "") -> None:
        """Delete an experiment with everything recorded about it.

        The caller removes the files of its checkpoints first.

        Raises:
            ExperimentBusy: another holder has its lease. The message names the holder.
            RecordInUse: one of its checkpoints is a version of a model. The message names the versions.
        """

    @reads
    @abstractmethod
    def model_definition(self, experiment_id: int) -> bytes:
        """Return the gzipped tar file given to `create_experiment`."""

    @writes(is_report=True)
    @abstractmethod
    def set_experiment_state(
        self, experiment_id: int, state: State, *, lease: str = "", error: str | None = None
    ) -> None:
        """Record a state. Final states set the end time, and others clear it. COMPLETED also sets the progress to 1.

        PAUSED is recorded as CANCELED if a user has requested an end in the meantime (`ENDINGS`).

        Args:
            error: reason for the state ERROR, in one line.

        Raises:
            StaleRun: ``lease`` is given but another runner has taken over the experiment.
        """

    @writes(Reach.EXPERIMENT)
    @abstractmethod
    def request_experiment_state(self, experiment_id: int, state: State) -> bool:
        """Ask the runner of an experiment to stop it. A request never replaces a stronger one.

        Args:
            state: a key of `REQUESTS`.

        Returns:
            Whether the experiment has a runner. Without one, nothing changes.
        """

    @writes(needs_owner=True)
    @abstractmethod
    def continue_experiment(
        self, experiment_id: int, *, config: Mapping[str, Any], original_config: str, restart_search: bool
    ) -> ExperimentRecord:
        """Replace the config of an experiment that has no runner, and record the state PAUSED, in one transaction.

        Args:
            config: the new config, as for `create_experiment`. The name, description and labels stay.
            original_config: the new text of the config.
            restart_search: whether the search starts over with the trials that exist, as after
                `TrackingStore.forget_search`.

        Returns:
            The changed experiment.

        Raises:
            ExperimentBusy: a runner has its lease. The message names it.
        """

    @writes(is_report=True)
    @abstractmethod
    def set_experiment_progress(self, experiment_id: int, progress: float, *, lease: str = "") -> None:
        """Record the share of the work that is done, 0 to 1.

        Raises:
            ValueError: the share is out of range.
        """

    # Lease: at most one runner owns an experiment.

    @writes()
    @abstractmethod
    def acquire_lease(self, experiment_id: int, holder: str, *, seconds: float, state: State | None = None) -> None:
        """Reserve the experiment for ``holder`` until ``seconds`` from now.

        Args:
            holder: ``"place:pid:start-time:random"`` of the runner (`det_core.runner`).
            seconds: duration of the lease.
            state: new state of the experiment, set atomically with the lease so that no request gets lost in between.

        Raises:
            ExperimentBusy: the lease of another holder has not expired. The message names the holder.
            ValueError: the lease would last longer than a day, or the holder is longer than `LONGEST_NAME`.
        """

    @writes(is_report=True)
    @abstractmethod
    def renew_lease(self, experiment_id: int, holder: str, *, seconds: float) -> None:
        """Extend the lease until ``seconds`` from now, even if it has expired.

        Raises:
            StaleRun: another holder has taken the experiment since, even if that holder has released it.
            ValueError: the lease would last longer than a day.
        """

    @reads
    @abstractmethod
    def lease_holder(self, experiment_id: int) -> str | None:
        """Return the holder of a lease that has not expired, or None."""

    @reads
    @abstractmethod
    def lease_holders(self, experiment_ids: Collection[int] | None = None) -> dict[int, str]:
        """Return the holders of leases that have not expired, by experiment id.

        Args:
            experiment_ids: the experiments, or None for all.
        """

    @writes(is_report=True)
    @abstractmethod
    def release_lease(self, experiment_id: int, holder: str) -> None:
        """Release the lease. Do nothing if ``holder`` no longer has it.

        A request to end the experiment that its runner has not seen is recorded as CANCELED.
        """


class SearchEventStore(ABC):
    """The part of a `TrackingStore` that handles searches.

    A search is an append-only log of the events that its method received. Searches are resumed from it.
    """

    @writes(is_report=True)
    @abstractmethod
    def record_search(
        self,
        experiment_id: int,
        events: Sequence[SearchEvent],
        trials: Sequence[TrialUpdate],
        *,
        snapshot: Any = None,
        lease: str = "",
    ) -> list[TrialRecord]:
        """Append search events and apply everything that follows from them, in one transaction.

        More than 10,000 trials are changed in several transactions, the last of which appends the events. If it is
        never made, the same call can be repeated.

        Requests to end a trial stay in place, and final states have the same effects, as in
        `TrackingStore.set_trial_state`.

        Args:
            events: events to append, numbered consecutively after the last one.
            trials: changes to the trials of the search.
            snapshot: JSON-compatible state of the method after the events. None keeps the previous snapshot.

        Returns:
            The changed trials, in the order of ``trials``.

        Raises:
            CallTooLarge: there are more than 10,000 events.
            TrackingError: an event with the same number exists, or there is a snapshot without events.
        """

    @writes(needs_owner=True)
    @abstractmethod
    def forget_search(self, experiment_id: int, *, lease: str = "") -> None:
        """Delete the events, the snapshot and the orders to train of a search, so that it starts over.

        Trials that have not ended become CANCELED until the search creates them again (`TrialUpdate.new`).
        """

    @reads
    @abstractmethod
    def search_snapshot(self, experiment_id: int) -> tuple[int, Any] | None:
        """Return the latest snapshot with the number of events before it, or None before the first snapshot.

        Returns:
            The number of events, and the method's state after them.
        """

    @reads
    @abstractmethod
    def search_events(self, experiment_id: int, *, start: int = 0) -> list[SearchEvent]:
        """Return the events from number ``start`` on, in order."""
