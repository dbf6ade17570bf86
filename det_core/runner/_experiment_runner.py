"""Execution of one experiment."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cache

from det_core import events
from det_core.config import parse_config
from det_core.core import open_storage_block
from det_core.core.checkpoint_retention import remove_superfluous
from det_core.core.event_stream import EventStream, make_fetch_files
from det_core.core.script_command import explain_script
from det_core.disk_errors import explain_disk_error
from det_core.errors import DetError, DiskError, ExperimentBusy, LaunchError, StaleRun, StoreBusy, TrackingError
from det_core.home import private_directory
from det_core.interfaces.launcher import Launcher
from det_core.interfaces.records import ENDINGS, REQUESTS, ExperimentRecord, State, TrialRecord
from det_core.interfaces.search_method import SearchMethod
from det_core.interfaces.tracking import TrackingStore
from det_core.launch._checked_launcher import CheckedLauncher
from det_core.launch.context_archive import unpack_context_dir
from det_core.launch.launchers import open_launcher
from det_core.runner._failed_launches import FailedLaunches
from det_core.runner._launch_request import experiment_key, trial_key
from det_core.runner._recorded_search import RecordedSearch
from det_core.runner._search_loop import SearchLoop
from det_core.runner._stop_requests import StopRequests
from det_core.runner._trial_history import find_orphaned_run
from det_core.runner._trial_pool import TrialPool
from det_core.runner._trial_runner import TrialRunner
from det_core.scratch import scratch_directory
from det_core.search.method_selection import open_search_method
from det_core.storage import check_storage
from det_core.tracking._lease import Lease
from det_core.tracking.secret_files import renew_places, resolve_secrets
from det_core.tracking.webhook_delivery import deliver_webhooks

_log = logging.getLogger("det.runner")


class ExperimentRunner:
    """Runner of a recorded experiment, which may be new, interrupted or killed.

    Args:
        store: the tracking store of the experiment.
        experiment_id: the experiment to run.
        from_beginning: whether trials that have lost all their checkpoints start from the beginning. By default they
            wait until the experiment is resumed.

    Raises:
        DetError: the experiment was recorded by a script.
        SecretMissing: the config refers to a secret that is not on this host.
    """

    def __init__(self, store: TrackingStore, experiment_id: int, *, from_beginning: bool = False) -> None:
        self._store = store
        self._from_beginning = from_beginning
        experiment = store.experiment(experiment_id)
        if experiment.unmanaged:
            raise DetError(explain_script(experiment))
        self._take_over(experiment)
        self._error: str | None = None
        self._trial_errors: Mapping[int, str] = {}
        self._requests = StopRequests(store, experiment_id)

    @property
    def signals(self) -> Sequence[int]:
        """Numbers of the signals received during the run. The first requests a pause, a second one may kill."""
        return self._requests.came

    def run(self, tick: Callable[[], None] = lambda: None) -> State:
        """Run the experiment until it ends or is requested to stop.

        Args:
            tick: function called about five times per second from this thread.

        Returns:
            COMPLETED, ERROR, CANCELED or PAUSED. The experiment is PAUSED on request, or because a trial could not be
            started.

        Raises:
            ExperimentBusy: another living runner holds the experiment.
            StaleRun: another runner has taken over the experiment.
            StoreBusy: the database was unavailable for too long. The experiment can be resumed.
            DetError: this host lacks memory or space, or another error has ended the experiment.
        """
        if self._experiment.state is State.COMPLETED:
            return State.COMPLETED
        before = self._experiment.state
        with (
            self._requests.signals(),
            deliver_webhooks(self._store),
            Lease(self._store, self._experiment.id, State.ACTIVE) as lease,
        ):
            # Its config may have been changed before this runner held it.
            self._take_over(replace(self._store.experiment(self._experiment.id), state=before))
            with closing(self._events):
                self._events.open()
                state = self._train(lease, tick)
                if state is State.COMPLETED:  # others keep all checkpoints, because the newest may be damaged
                    self._clean_up(lease)
        tick()
        return state

    def _take_over(self, experiment: ExperimentRecord) -> None:
        """Use the present record of the experiment."""
        self._experiment = experiment
        self._config = parse_config(experiment.config)
        renew_places(experiment.config, self._config.dump())
        resolve_secrets(self._config.dump())  # report a missing secret before anything starts
        self._events = EventStream(
            "runner",
            cluster_id=self._store.cluster_id,
            experiment_id=experiment.id,
            config=experiment.config,
            fetch_files=make_fetch_files(cache(lambda: open_storage_block(self._config.dump()["checkpoint_storage"]))),
        )

    def _train(self, lease: Lease, tick: Callable[[], None]) -> State:
        try:
            self._begin()
            state = self._run(lease, tick)
        except (StaleRun, ExperimentBusy):
            raise  # another runner holds the experiment now
        except (StoreBusy, DiskError, OSError, MemoryError) as error:  # of this host, so training can go on later
            self._break_off(State.PAUSED, error, lease)
            kind = StoreBusy if isinstance(error, StoreBusy) else DetError
            reason = (self._error or "").rstrip(".")
            raise kind(
                f"{reason}. The experiment was stopped; to continue it: det experiment resume {self._experiment.id}"
            ) from error
        except BaseException as error:
            self._break_off(State.ERROR, error, lease)
            raise
        return self._finish(state, lease)

    def _break_off(self, state: State, error: BaseException, lease: Lease) -> None:
        """Record the end of the experiment by an error, unless this fails, too."""
        explained = isinstance(error, Exception) and explain_disk_error(error)
        self._error = str(explained or error) or repr(error)
        try:
            for trial in self._store.trials(self._experiment.id, states=[State.ACTIVE]):
                self._store.set_trial_state(trial.id, State.PAUSED, lease=lease.holder)
            self._finish(state, lease)
        except TrackingError as failure:
            _log.warning("experiment %d keeps its last recorded state: %s", self._experiment.id, failure)

    def _clean_up(self, lease: Lease) -> None:
        """Remove the checkpoints that the policy does not keep, unless a stop is requested."""

        def proceed() -> bool:
            lease.check()
            return self._requests.current is None

        if self._config.checkpoint_storage:
            remove_superfluous(
                self._store,
                self._experiment.id,
                self._config.checkpoint_storage,
                proceed,
                lease=lease.holder,
                on_deleted=self._events.checkpoint_deleted,
            )

    def _begin(self) -> None:
        self._events.emit(events.ExperimentStarted, resumed=self._experiment.state is not State.QUEUED)

    def _finish(self, state: State, lease: Lease) -> State:
        identity = self._experiment.id
        self._store.set_experiment_state(identity, state, lease=lease.holder, error=self._error)
        state = self._store.experiment(identity).state  # a late request may be stronger than this state
        self._events.experiment_finished(self._store, state, self._error)
        return state

    def _run(self, lease: Lease, tick: Callable[[], None]) -> State:
        config = self._config
        code = self._store.model_definition(self._experiment.id)
        with scratch_directory("context", private_directory("runs")) as context_dir:
            unpack_context_dir(code, context_dir)
            storage = open_storage_block(config.dump()["checkpoint_storage"])
            check_storage(storage)
            launcher, launches = self._open_launcher(lease), FailedLaunches()
            runner = TrialRunner(
                store=self._store,
                experiment=self._experiment,
                config=config,
                code=code,
                launcher=launcher,
                lease=lease.holder,
                renew_lease=lease.renew,
                storage=storage,
                from_beginning=self._from_beginning,
                stream=self._events,
                launches=launches,
            )
            with (
                _closed(launcher),
                open_search_method(config, context_dir) as method,
                TrialPool(runner.run, self._requests, self._room(launcher)) as trials,
            ):
                search = self._begin_search(method, lease)
                if self._was_ended:
                    self._end_as_requested(launcher)
                loop = self._run_search(search, trials, launches, lease, tick)
            return self._outcome(search, loop)

    @property
    def _was_ended(self) -> bool:
        """Whether an earlier runner was asked to end the experiment, and has died before it did so."""
        return self._experiment.state in ENDINGS

    def _end_as_requested(self, launcher: CheckedLauncher) -> None:
        """Take over the request of an earlier runner, and remove what that has started."""
        self._requests.repeat(self._experiment.state)
        _log.warning(
            "experiment %d ends, because this was requested before its last runner died; to continue it: "
            "det experiment resume %d",
            self._experiment.id,
            self._experiment.id,
        )
        try:
            launcher.remove_leftovers()
        except LaunchError as error:
            _log.warning("what its last runner has started ends by itself, because it could not be removed: %s", error)

    def _open_launcher(self, lease: Lease) -> CheckedLauncher:
        launcher = open_launcher(self._config)
        key = experiment_key(self._store, self._experiment.id)
        keep = self._orphaned_keys() if launcher.adopts and not self._was_ended else ()
        return CheckedLauncher(launcher, key, keep, lease.renew)

    def _begin_search(self, method: SearchMethod, lease: Lease) -> RecordedSearch:
        search = RecordedSearch(
            self._store,
            self._experiment.id,
            method,
            seed=self._config.reproducibility.experiment_seed,
            lease=lease.holder,
            ended=self._trial_ended,
        )
        search.begin()
        return search

    def _run_search(
        self,
        search: RecordedSearch,
        trials: TrialPool,
        launches: FailedLaunches,
        lease: Lease,
        tick: Callable[[], None],
    ) -> SearchLoop:
        """Run a search until it ends, and return its loop, which knows why."""
        loop = SearchLoop(
            self._store,
            self._experiment.id,
            search,
            trials,
            self._requests,
            launches,
            smaller_is_better=self._config.searcher.smaller_is_better,
            lease=lease.holder,
            ended=self._trial_ended,
        )
        self._trial_errors = loop.errors

        def turn() -> None:
            lease.check()
            tick()

        loop.run(turn)
        return loop

    def _orphaned_keys(self) -> Sequence[str]:
        """Return the keys of the launches that may have outlived an earlier runner."""
        active = self._store.trials(self._experiment.id, ordered=True, states=[State.ACTIVE])
        return [trial_key(self._store, trial) for trial in active if find_orphaned_run(self._store, trial)]

    def _outcome(self, search: RecordedSearch, loop: SearchLoop) -> State:
        if self._requests.current:
            return REQUESTS[self._requests.current]
        if loop.hopeless and search.queue:
            self._error = loop.hopeless
            return State.ERROR
        if loop.postponed:
            self._error = loop.postponed
            return State.PAUSED
        outcome = search.finish()
        if outcome is State.ERROR:
            self._error = loop.error
        return outcome

    def _trial_ended(self, trial: TrialRecord) -> None:
        error = self._trial_errors.get(trial.id) if trial.state is State.ERROR else None
        self._events.trial_finished(self._store, trial, error)

    def _room(self, launcher: Launcher) -> int | None:
        """Return how many trials may train at once, or None if the launcher queues the others."""
        resources = self._config.resources
        limits = [limit for limit in (launcher.slots, resources.max_slots) if limit is not None]
        return max(min(limits) // max(resources.slots_per_trial, 1), 1) if limits else None


@contextmanager
def _closed(launcher: Launcher) -> Iterator[None]:
    """Close a launcher at the end of the block. An error in it does not change how the experiment has ended."""
    try:
        yield
    finally:
        try:
            launcher.close()
        except LaunchError as error:
            _log.warning("%s", error)
