"""Rights of those who call a tracking store from elsewhere, by what its methods state about themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple
from uuid import UUID

from det_core.errors import CallTooLarge, StaleRun, TrackingError
from det_core.interfaces.account_records import Role
from det_core.interfaces.records import MAX_ROWS
from det_core.interfaces.server_store import Action
from det_core.interfaces.tracking import Reach, TrackingStore
from det_core.tracking.remote._calls import StoreMethod

_BITS = 64
"""Number of bits of an id."""
_MOST_NAMES = 5
"""Maximum number of records that an entry of the audit log names, those of others first."""


@dataclass(frozen=True)
class RunAccess:
    """One run of a trial, whose workers call.

    Args:
        experiment_id: id of the trial's experiment.
        trial_id: id of the trial.
        run_id: number of the run.
        source: uuid of the checkpoint that the run starts from, which may be one of another experiment, or None.
    """

    experiment_id: int
    trial_id: int
    run_id: int
    source: str | None = None

    def __str__(self) -> str:
        return f"run {self.run_id} of trial {self.trial_id}"


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Caller of a tracking store, with its rights.

    Args:
        user: name of the user, or that of a run's user.
        role: role of the user, or a weaker one to which the token is limited.
        run: the run whose workers call, or None for a person.
        owns_all: whether all records are those of the user, because nobody else uses the store.
        address: network address, or None for a call that comes from nowhere else and is not in the audit log.
    """

    user: str
    role: Role = Role.USER
    run: RunAccess | None = None
    owns_all: bool = False
    address: str | None = None

    def check_method(self, method: StoreMethod) -> None:
        """Check that the caller may call a method at all.

        Raises:
            TrackingError: no.
        """
        rights = method.rights
        if self.run and rights.workers is Reach.NOTHING:
            raise TrackingError(f"{self.run} may not call {method.name}, which is not for workers")
        if not self.role.includes(rights.role):
            what = "changes need" if rights.writes else f"{method.name} needs"
            raise TrackingError(
                f"{self.user} has the role {self.role} here, and {what} {rights.role}; ask an admin for it"
            )

    def check_run(self, store: TrackingStore) -> None:
        """Check that a run that calls from elsewhere may still do so. An agent only lives as long as its run.

        Raises:
            StaleRun: it has ended, or is not the newest of its trial.
        """
        if self.run and self.address is not None:
            require_current(store, self.run)

    def check_records(self, store: TrackingStore, method: StoreMethod, arguments: Mapping[str, Any]) -> Action | None:
        """Check that the caller may call a method for the records that the arguments name.

        Args:
            store: the store, in which the owners of records are looked up.
            method: a method that `check_method` permits.
            arguments: arguments of the call by name.

        Returns:
            The entry for the audit log, or None if it gets none.

        Raises:
            RecordNotFound: the call is about a record that does not exist.
            TrackingError: the caller may not call the method for it.
        """
        rights = method.rights
        is_fenced = bool(arguments.get("lease")) or not method.takes("lease")
        is_report = rights.is_report and is_fenced
        if not rights.writes or (is_report and self.owns_all and not self.run):
            return None
        refusal = TrackingError(f"{self.run} may call {method.name} only for {rights.workers}")
        if method.takes("storage") and (self.run or self.address is not None):
            _require_new_id(arguments["uuid"])
        if self.run and rights.workers is Reach.RUN:
            if not _is_of_run(self.run, store, arguments):
                raise refusal
            if method.takes("storage") and self.address is not None:
                _require_own_storage(store, self.run, arguments["storage"])
            if is_report:
                return None
        records = list(_records_of(store, method, arguments))
        if self.run:
            reaches = _REACHES[rights.workers]
            if not all(reaches(self, self.run, record) for record in records):
                raise refusal
        elif rights.needs_owner:
            self._require_ownership(records, method.name)
        if self.address is None or (is_report and all(map(self._owns, records))):
            return None
        return Action(self.user, method.name, _join_names(sorted(records, key=self._owns)), self.address)

    def require_ownership(self, store: TrackingStore, what: str, **record: Any) -> None:
        """Check that a record belongs to the caller, who may also be an admin.

        Args:
            store: the store, in which the owner is looked up.
            what: what needs the ownership, for the error message.
            record: ``experiment_id``, ``trial_id``, ``uuid`` of a checkpoint, or ``name`` of a model.

        Raises:
            RecordNotFound: there is no such record.
            TrackingError: it belongs to another user.
        """
        ((argument, value),) = record.items()
        self._require_ownership([_FINDERS[argument](store, value)], what)

    def _require_ownership(self, records: Iterable[_Record], what: str) -> None:
        foreign = next((record for record in records if not self._owns(record)), None)
        if foreign and not self.role.includes(Role.ADMIN):
            raise TrackingError(f"{foreign.name} belongs to {foreign.owner}; {what} needs its owner or an admin")

    def _owns(self, record: _Record) -> bool:
        return self.owns_all or record.owner in ("", self.user)


class _Record(NamedTuple):
    """Record that a call is about."""

    name: str
    """Name for people, such as ``trial 3``."""
    owner: str
    """Name of the user to whom it belongs, or an empty string for nobody."""
    experiment_id: int | None = None
    """Experiment of the record, if it belongs to one."""
    trial_id: int | None = None
    """Trial of the record, if it belongs to one."""


def require_current(store: TrackingStore, run: RunAccess) -> None:
    """Check that a run is the newest of its trial, and has not ended.

    Raises:
        RecordNotFound: there is no such run.
        StaleRun: it is not.
    """
    end = store.run(run.trial_id, run.run_id).end_time
    newest = store.trial(run.trial_id).run_id
    if newest != run.run_id:
        raise StaleRun(f"{run} may not call the tracking store: the newest is run {newest}")
    if end is not None:
        raise StaleRun(f"{run} may not call the tracking store: it has ended")


def _require_own_storage(store: TrackingStore, run: RunAccess, storage: Mapping[str, Any]) -> None:
    """Check that a run that calls from elsewhere stores its checkpoint where its experiment does.

    The runner deletes checkpoints with its own rights, in any directory, and with the secrets that a storage names.
    """
    if storage != (store.experiment(run.experiment_id).config.get("checkpoint_storage") or {}):
        raise TrackingError(f"{run} may store checkpoints only in the checkpoint_storage of its experiment's config")


def _require_new_id(uuid: str) -> None:
    """Check the id of a checkpoint to be, as which nobody may choose another directory that is in the storage.

    The runner deletes the directory of a superfluous checkpoint, whatever it contains.
    """
    with suppress(ValueError):
        if str(UUID(uuid)) == uuid:
            return
    raise TrackingError(f"a checkpoint cannot have the id {uuid!r:.100}; expected a UUID in lower case")


def _of_experiment(store: TrackingStore, experiment_id: int) -> _Record:
    return _Record(f"experiment {experiment_id}", store.experiment(experiment_id).owner, experiment_id)


def _of_trial(store: TrackingStore, trial_id: int) -> _Record:
    experiment = _of_experiment(store, store.trial(trial_id).experiment_id)
    return experiment._replace(name=f"trial {trial_id}", trial_id=trial_id)


def _of_trials(store: TrackingStore, trial_ids: Sequence[int]) -> Iterator[_Record]:
    """Yield the records of trials, with few reads, because others may wait to write.

    Raises:
        CallTooLarge: there are more than `MAX_ROWS`.
        RecordNotFound: there is no such trial.
    """
    if len(trial_ids) > MAX_ROWS:
        raise CallTooLarge(f"one call has {len(trial_ids)} records; expected at most {MAX_ROWS}")
    wanted = [trial_id for trial_id, _ in groupby(sorted(trial_ids))]  # hashes of any number of ids can be the same
    found = store.trials_by_id([trial_id for trial_id in wanted if trial_id.bit_length() < _BITS], brief=True)
    experiment_of = {trial.id: trial.experiment_id for trial in found}
    owner_of = {one.id: one.owner for one in store.experiments_by_id({*experiment_of.values()}, brief=True)}
    for trial_id in wanted:
        experiment_id = experiment_of.get(trial_id)
        if experiment_id in owner_of:
            yield _Record(f"trial {trial_id}", owner_of[experiment_id], experiment_id, trial_id)
        else:
            yield _of_trial(store, trial_id)


def _of_checkpoint(store: TrackingStore, uuid: str) -> _Record:
    return _of_trial(store, store.checkpoint(uuid, brief=True).trial_id)._replace(name=f"checkpoint {uuid}")


def _of_model(store: TrackingStore, name: str | int) -> _Record:
    model = store.model(name)
    return _Record(f"model {model.id}", model.owner)


_FINDERS: Mapping[str, Callable[[TrackingStore, Any], _Record]] = {
    "trial_id": _of_trial,
    "experiment_id": _of_experiment,
    "uuid": _of_checkpoint,
    "name": _of_model,
    "token_id": lambda store, token_id: _Record(f"token {token_id}", ""),
}
"""Arguments that name the record of a call, the first of which counts."""
_LISTS = ("reports", "samples", "lines")
"""Arguments with many records of runs."""


def _is_of_run(run: RunAccess, store: TrackingStore, arguments: Mapping[str, Any]) -> bool:
    """Return whether the arguments of a call for runs name this one only."""
    items = next((arguments[name] for name in _LISTS if name in arguments), None)
    if items is not None:
        return all((item.trial_id, item.run_id) == (run.trial_id, run.run_id) for item in items)
    trial_id = arguments["trial_id"] if "trial_id" in arguments else store.checkpoint(arguments["uuid"]).trial_id
    return (trial_id, arguments["run_id"]) == (run.trial_id, run.run_id)


def _records_of(store: TrackingStore, method: StoreMethod, arguments: Mapping[str, Any]) -> Iterator[_Record]:
    """Yield the records that a call changes, and the checkpoint that a new version of a model keeps from deletion."""
    if method.rights.creates:
        return
    named = next(filter(method.takes, (*_LISTS, *_FINDERS)), None)
    if named is None:
        raise TrackingError(f"{method.name} names no record, so nobody may call it; rename its arguments")
    if named in _LISTS:
        yield from _of_trials(store, [item.trial_id for item in arguments[named]])
    else:
        yield _FINDERS[named](store, arguments[named])
    if named == "name" and "checkpoint_uuid" in arguments:
        yield _of_checkpoint(store, arguments["checkpoint_uuid"])


def _join_names(records: Iterable[_Record]) -> str:
    names = list(dict.fromkeys(record.name for record in records))
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


_REACHES: Mapping[Reach, Callable[[Caller, RunAccess, _Record], bool]] = {
    Reach.RUN: lambda caller, run, record: record.trial_id == run.trial_id,
    Reach.EXPERIMENT: lambda caller, run, record: record.experiment_id == run.experiment_id,
    Reach.SOURCE: lambda caller, run, record: (
        record.experiment_id == run.experiment_id
        or (run.source is not None and record.name == f"checkpoint {run.source}")
    ),
    Reach.MODELS: lambda caller, run, record: caller._owns(record),
    Reach.ANYTHING: lambda caller, run, record: True,
}
