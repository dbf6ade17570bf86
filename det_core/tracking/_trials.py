"""Trials in the tracking store, their runs, and the operation that a search method assigns to each."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, ColumnElement, Connection, Select, delete, func, literal_column, or_, select, update

from det_core.errors import RecordNotFound, StaleRun, TrackingError
from det_core.interfaces.records import (
    ENDINGS,
    MAX_GPUS,
    MAX_MACHINES,
    MAX_STEPS,
    CheckpointState,
    Machine,
    Run,
    SearcherOperationRecord,
    State,
    TrialRecord,
)
from det_core.interfaces.server_store import SHOWN_OF_REASONS, SHOWN_OF_TEXTS
from det_core.tracking._column_types import make_writable, utc_now
from det_core.tracking._metrics import archive_after
from det_core.tracking._rows import (
    RUNNER_ENDED,
    StoreMixin,
    brief_trial,
    brief_trial_columns,
    end_runs,
    fence_run,
    fetch_only_row,
    fetch_record,
    fetch_records,
    get_experiment,
    get_trial,
    holder_of,
    id_list,
    insert_row,
    lock_experiment,
    lock_trial,
    record_columns,
    require_share,
    update_trial,
)
from det_core.tracking._schema import checkpoints, experiments, machines, runs, trials

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

_RUN_TEXTS = ("allocation_id", "early_exit", "end_reason", "cause", "placement")
_MACHINE_FIELDS = tuple(one.name for one in fields(Machine))
_operation_columns = (trials.c.searcher_length, trials.c.searcher_completed, trials.c.searcher_metric)


class TrialsMixin(StoreMixin):
    """Methods of the tracking store for trials and runs."""

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
        if "" in hparams:
            raise ValueError("a hyperparameter has an empty name; expected one such as 'learning_rate'")
        values = {
            "experiment_id": experiment_id,
            "request_id": request_id,
            "state": State.QUEUED,
            "hparams": hparams,
            "seed": seed,
            "task_id": f"{experiment_id}.{uuid.uuid4()}",
            "external_id": external_id,
            "start_time": utc_now(),
        }
        same = select(trials.c.id).where(trials.c.experiment_id == experiment_id, trials.c.external_id == external_id)
        with self._database.write(durable=True) as connection:
            lock_experiment(connection, experiment_id, lease)
            found = None if external_id is None else connection.execute(same).scalar_one_or_none()
            created = found or insert_row(connection, trials, values)
            return get_trial(connection, created)

    def trial(self, trial_id: int) -> TrialRecord:
        with self._database.read() as connection:
            return get_trial(connection, trial_id)

    def trials(self, experiment_id: int, *, ordered: bool = False, states: Sequence[State] = ()) -> list[TrialRecord]:
        query = select(*record_columns(trials, TrialRecord)).where(trials.c.experiment_id == experiment_id)
        if ordered:
            query = query.where(trials.c.ordered.is_not(None))
        if states:
            query = query.where(trials.c.state.in_(states))
        with self._database.read() as connection:
            get_experiment(connection, experiment_id)
            return fetch_records(connection, TrialRecord, query.order_by(trials.c.id))

    def trials_by_id(self, trial_ids: Collection[int], *, brief: bool = False) -> list[TrialRecord]:
        columns = brief_trial_columns() if brief else record_columns(trials, TrialRecord)
        query = select(*columns).where(trials.c.id.in_(id_list(None, list(trial_ids))))
        with self._database.read() as connection:
            records = fetch_records(connection, brief_trial if brief else TrialRecord, query)
            found = {trial.id: trial for trial in records}
            return [found[trial_id] for trial_id in dict.fromkeys(trial_ids) if trial_id in found]

    def set_trial_state(self, trial_id: int, state: State, *, lease: str = "") -> None:
        ended = utc_now() if state.final else None
        with self._database.write(durable=True) as connection:
            lock_trial(connection, trial_id, lease=lease)
            change = update(trials).where(trials.c.id == trial_id)
            if not state.final and state not in ENDINGS:
                change = change.where(trials.c.state.not_in(ENDINGS))
            connection.execute(change.values(state=state, end_time=ended))
            if ended:
                reason = "" if state is State.COMPLETED else f"its trial ended as {state}"
                end_runs(connection, reason, trials.c.id == trial_id)

    def request_trial_end(self, trial_id: int) -> bool:
        with self._database.write(durable=True) as connection:
            lock_trial(connection, trial_id)
            trial = get_trial(connection, trial_id)
            if trial.state.final or holder_of(connection, trial.experiment_id, self._database.clock) is None:
                return False
            update_trial(connection, trial_id, state=State.STOPPING_KILLED, end_time=None)
            return True

    def count_restart(self, trial_id: int, *, lease: str = "") -> int:
        return self._increment(trial_id, trials.c.restarts, lease)

    def count_interruption(self, trial_id: int, *, lease: str = "") -> int:
        return self._increment(trial_id, trials.c.interruptions, lease)

    def start_run(self, trial_id: int, *, allocation_id: str, lease: str = "") -> Run:
        with self._database.write() as connection:
            trial = lock_trial(connection, trial_id, lease=lease)
            start, saved_by, now = 0, None, utc_now()
            if trial.run_id:  # the first run has nothing to continue, archive or end
                operation = _fetch_operation(connection, trial_id)
                start = trial.steps_completed
                if not (operation and operation.completed):  # otherwise, what follows is not trained again
                    start, saved_by = _origin(connection, trial_id, start)
                end_runs(connection, RUNNER_ENDED, trials.c.id == trial_id)
            run = Run(
                trial_id=trial_id,
                run_id=trial.run_id + 1,
                allocation_id=allocation_id,
                start_time=now,
                start_step=start,
            )
            connection.execute(runs.insert().values(vars(run)))
            if saved_by is not None:  # after the insertion, which fails if the run cannot be stored
                archive_after(connection, trial_id, start, saved_by)
            update_trial(connection, trial_id, run_id=run.run_id, steps_completed=start, runner_state="")
            return run

    def continue_run(self, trial_id: int, run_id: int, *, lease: str) -> float:
        if not lease:
            raise StaleRun(f"run {run_id} of trial {trial_id} goes on only with the lease of its experiment")
        goes_on = or_(runs.c.end_time.is_(None), runs.c.end_reason == RUNNER_ENDED)
        go_on = update(runs).where(*_is_run(trial_id, run_id), goes_on)
        with self._database.write() as connection:
            lock_trial(connection, trial_id, lease=lease)
            fence_run(connection, trial_id, run_id)
            if not connection.execute(go_on.values(end_time=None, end_reason="")).rowcount:
                raise StaleRun(f"run {run_id} of trial {trial_id} has ended; start another one")
            return float(connection.execute(select(self._database.clock)).scalar_one())

    def run(self, trial_id: int, run_id: int) -> Run:
        with self._database.read() as connection:
            what = f"run {run_id} of trial {trial_id}"
            return fetch_record(connection, Run, runs, *_is_run(trial_id, run_id), what=what)

    def runs(self, trial_id: int) -> list[Run]:
        query = select(*record_columns(runs, Run)).where(runs.c.trial_id == trial_id).order_by(runs.c.run_id)
        with self._database.read() as connection:
            get_trial(connection, trial_id)
            return fetch_records(connection, Run, query)

    def runs_of_trials(self, trial_ids: Collection[int], *, limit: int) -> list[Run]:
        of_trials = runs.c.trial_id.in_(id_list(None, list(trial_ids)))
        query = _select_runs(SHOWN_OF_TEXTS).where(of_trials).order_by(runs.c.run_id, runs.c.trial_id).limit(limit)
        with self._database.read() as connection:
            return fetch_records(connection, Run, query)

    def latest_runs(self, trial_id: int, *, limit: int) -> list[Run]:
        of_trial = _select_runs(SHOWN_OF_REASONS).where(runs.c.trial_id == trial_id)
        with self._database.read() as connection:
            return fetch_records(connection, Run, of_trial.order_by(runs.c.run_id.desc()).limit(limit))[::-1]

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
        ended = {
            "end_time": func.coalesce(runs.c.end_time, utc_now()),
            "end_reason": make_writable(reason),
            "exit_code": exit_code,
            "cause": make_writable(cause),
            "slots": func.coalesce(slots, runs.c.slots),
        }
        with self._database.write() as connection:
            newest = lock_trial(connection, trial_id, lease=lease).run_id
            if not _change_run(connection, trial_id, run_id, **ended):
                raise RecordNotFound(f"there is no run {run_id} of trial {trial_id}")
            if run_id == newest:
                update_trial(connection, trial_id, placement="")

    def record_machine(self, trial_id: int, run_id: int, machine: Machine) -> None:
        if not 0 <= machine.node < MAX_MACHINES:
            raise ValueError(f"the machine has the index {machine.node}; expected 0 to {MAX_MACHINES - 1}")
        if len(machine.gpus) > MAX_GPUS or not all(map(_is_gpu, machine.gpus)):
            raise ValueError(
                f"the machine has odd GPUs; expected at most {MAX_GPUS} with a name, a memory in bytes and a driver"
            )
        values = {name: make_writable(one) if isinstance(one, str) else one for name, one in vars(machine).items()}
        key = {"trial_id": trial_id, "run_id": run_id, "node": machine.node}
        with self._database.write() as connection:
            fence_run(connection, trial_id, run_id)
            connection.execute(delete(machines).where(*(machines.c[name] == one for name, one in key.items())))
            connection.execute(machines.insert().values({**values, **key}))

    def machines(self, trial_id: int, *, limit: int | None = None, brief: bool = False) -> dict[int, list[Machine]]:
        without = literal_column("'{}'", machines.c.packages.type).label("packages")
        columns = [without if brief and one.key == "packages" else one for one in record_columns(machines, Machine)]
        query = select(machines.c.run_id, *columns).where(machines.c.trial_id == trial_id)
        found = defaultdict[int, list[Machine]](list)
        with self._database.read() as connection:
            get_trial(connection, trial_id)
            ordered = query.order_by(machines.c.run_id.desc(), machines.c.node).limit(limit)
            for run_id, machine in _machines_by_key(connection, ordered):
                found[run_id].append(machine)
        return dict(found)

    def newest_machines(self, trial_ids: Collection[int]) -> dict[int, Machine]:
        c = machines.c
        of_chiefs = (c.trial_id.in_(id_list(None, list(trial_ids))), c.node == 0)
        newest = (
            select(c.trial_id, func.max(c.run_id).label("run_id")).where(*of_chiefs).group_by(c.trial_id).subquery()
        )
        same = (newest.c.trial_id == c.trial_id) & (newest.c.run_id == c.run_id)
        query = select(c.trial_id, *record_columns(machines, Machine)).join(newest, same).where(c.node == 0)
        with self._database.read() as connection:
            return dict(_machines_by_key(connection, query))

    def acknowledge_preemption(self, trial_id: int, run_id: int) -> None:
        self._update_run(trial_id, run_id, preemption_acknowledged=True)

    def report_early_exit(self, trial_id: int, run_id: int, reason: str) -> None:
        self._update_run(trial_id, run_id, early_exit=reason)

    def set_trial_progress(self, trial_id: int, run_id: int, progress: float) -> None:
        require_share(progress)
        alone = select(trials.c.experiment_id).where(trials.c.id == trial_id).scalar_subquery()
        follow = update(experiments).where(experiments.c.id == alone, experiments.c.unmanaged)
        with self._database.write() as connection:
            fence_run(connection, trial_id, run_id)
            update_trial(connection, trial_id, progress=progress)
            connection.execute(follow.values(progress=progress))

    def set_trial_total(self, trial_id: int, run_id: int, batches: int) -> None:
        with self._database.write() as connection:
            fence_run(connection, trial_id, run_id)
            update_trial(connection, trial_id, total_batches=batches)

    def set_runner_state(self, trial_id: int, run_id: int, status: str) -> None:
        with self._database.write() as connection:
            fence_run(connection, trial_id, run_id)
            update_trial(connection, trial_id, runner_state=status)

    def set_trial_placement(self, trial_id: int, run_id: int, placement: str, *, slots: int | None = None) -> None:
        from det_core.interfaces.launcher import Phase  # scripts by themselves do not need it

        with self._database.write() as connection:
            fence_run(connection, trial_id, run_id)
            before = connection.execute(select(trials.c.placement).where(trials.c.id == trial_id)).scalar_one()
            update_trial(connection, trial_id, placement=make_writable(placement))
            if placement.startswith(Phase.RUNNING.value):
                _change_run(connection, trial_id, run_id, placement=make_writable(placement))
            if slots is not None:
                _change_run(connection, trial_id, run_id, slots=slots)
            if before.startswith(Phase.QUEUED.value) and not placement.startswith(Phase.QUEUED.value):
                _change_run(connection, trial_id, run_id, start_time=utc_now())

    def set_trial_metadata(self, trial_id: int, run_id: int, metadata: Mapping[str, Any]) -> None:
        with self._database.write() as connection:
            fence_run(connection, trial_id, run_id)
            update_trial(connection, trial_id, metadata=metadata)

    def _increment(self, trial_id: int, counter: Column[int], lease: str) -> int:
        with self._database.write() as connection:
            lock_trial(connection, trial_id, lease=lease)
            update_trial(connection, trial_id, **{counter.name: counter + 1})
            return int(connection.execute(select(counter).where(trials.c.id == trial_id)).scalar_one())

    def _update_run(self, trial_id: int, run_id: int, **values: Any) -> None:
        with self._database.write() as connection:
            fence_run(connection, trial_id, run_id)
            _change_run(connection, trial_id, run_id, **values)

    def set_searcher_operation(self, trial_id: int, length: int, *, lease: str = "") -> None:
        if not 0 < length <= MAX_STEPS:
            raise ValueError(f"the searcher operation has length {length}; expected 1 to {MAX_STEPS}")
        with self._database.write() as connection:
            lock_trial(connection, trial_id, lease=lease)
            update_trial(connection, trial_id, searcher_length=length)

    def searcher_operation(self, trial_id: int) -> SearcherOperationRecord | None:
        with self._database.read() as connection:
            return _fetch_operation(connection, trial_id)

    def complete_searcher_operation(self, trial_id: int, run_id: int, length: int, metric: float) -> None:
        with self._database.write() as connection:
            fence_run(connection, trial_id, run_id)
            current = _fetch_operation(connection, trial_id)
            if current is None or current.length != length or current.completed:
                raise TrackingError(f"trial {trial_id} cannot complete length {length}: {_describe_operation(current)}")
            update_trial(connection, trial_id, searcher_completed=length, searcher_metric=float(metric))


def _origin(connection: Connection, trial_id: int, reached: int) -> tuple[int, int]:
    """Return the step of the latest completed checkpoint and the run that saved it, or zeros if there is none."""
    c = checkpoints.c
    completed = (c.trial_id == trial_id, c.state == CheckpointState.COMPLETED)
    latest_first = select(c.steps_completed, c.run_id).where(*completed).order_by(c.id.desc())
    row = connection.execute(latest_first).first()
    if row is None:
        return 0, 0
    # A script need not report the step of its checkpoint. The trial then keeps its present step.
    return reached if row.steps_completed is None else int(row.steps_completed), int(row.run_id)


def _fetch_operation(connection: Connection, trial_id: int) -> SearcherOperationRecord | None:
    """Return the current operation of a trial, or None if it has none."""
    row = fetch_only_row(connection, select(*_operation_columns).where(trials.c.id == trial_id), f"trial {trial_id}")
    if row.searcher_length is None:
        return None
    done = row.searcher_completed == row.searcher_length
    return SearcherOperationRecord(
        length=row.searcher_length, completed=done, metric=row.searcher_metric if done else None
    )


def _describe_operation(current: SearcherOperationRecord | None) -> str:
    if current is None:
        return "the searcher has assigned no operation to it"
    return f"the searcher's operation has length {current.length}" + (" and is completed" if current.completed else "")


def _is_run(trial_id: int, run_id: int) -> tuple[ColumnElement[bool], ...]:
    return runs.c.trial_id == trial_id, runs.c.run_id == run_id


def _change_run(connection: Connection, trial_id: int, run_id: int, **values: Any) -> bool:
    """Change values of a run, and return whether it exists."""
    return bool(connection.execute(update(runs).where(*_is_run(trial_id, run_id)).values(values)).rowcount)


def _is_gpu(gpu: object) -> bool:
    if not isinstance(gpu, Mapping) or gpu.keys() != {"name", "memory", "driver"}:
        return False
    memory = gpu["memory"]
    return (
        type(memory) is int
        and 0 <= memory < 1 << 63
        and isinstance(gpu["name"], str)
        and isinstance(gpu["driver"], str)
    )


def _machines_by_key(connection: Connection, query: Select[Any]) -> Iterator[tuple[int, Machine]]:
    """Yield the machines of a query, each with the value of its first column."""
    for key, *values in connection.execute(query):
        yield key, Machine(**dict(zip(_MACHINE_FIELDS, values, strict=True)))


def _select_runs(characters: int) -> Select[Any]:
    """Select runs with the beginnings of their texts, each of which may have a megabyte."""
    texts = {name: func.substr(runs.c[name], 1, characters) for name in _RUN_TEXTS}
    return select(*(texts[one.key].label(one.key) if one.key in texts else one for one in record_columns(runs, Run)))
