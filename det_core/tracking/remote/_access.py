"""Permissions of the workers of one run on the tracking store of their runner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from det_core.errors import TrackingError
from det_core.interfaces.tracking import TrackingStore
from det_core.interfaces.tracking._accounts import AccountStore

ACCOUNT_METHODS = AccountStore.__abstractmethods__
"""Names of the methods that handle passwords and tokens. No client may call them."""


@dataclass(frozen=True)
class RunAccess:
    """Permission to read, and to write what belongs to one run of a trial.

    Args:
        experiment_id: id of the trial's experiment.
        trial_id: id of the trial.
        run_id: number of the run.
    """

    experiment_id: int
    trial_id: int
    run_id: int

    def check_call(self, store: TrackingStore, method: str, arguments: Mapping[str, Any]) -> None:
        """Check that the run may make a call.

        Args:
            store: the store, in which the owners of checkpoints and trials are looked up.
            method: name of the method.
            arguments: arguments of the call by name.

        Raises:
            TrackingError: the run may not call the method, or not with these arguments.
        """
        rule = WORKER_METHODS.get(method)
        who = f"run {self.run_id} of trial {self.trial_id}"
        if rule is None:
            raise TrackingError(f"{who} may not call {method}; a worker may call {', '.join(sorted(WORKER_METHODS))}")
        if not rule.permits(self, store, arguments):
            raise TrackingError(f"{who} may call {method} only for {rule.scope}")


class _Rule(NamedTuple):
    scope: str
    """Arguments that are permitted, for the error message."""
    permits: Callable[[RunAccess, TrackingStore, Mapping[str, Any]], bool]


def _is_own_run(access: RunAccess, _: TrackingStore, arguments: Mapping[str, Any]) -> bool:
    return (arguments["trial_id"], arguments["run_id"]) == (access.trial_id, access.run_id)


def _are_of_own_run(access: RunAccess, _: TrackingStore, arguments: Mapping[str, Any]) -> bool:
    (records,) = arguments.values()
    return all((record.trial_id, record.run_id) == (access.trial_id, access.run_id) for record in records)


def _is_own_checkpoint(access: RunAccess, store: TrackingStore, arguments: Mapping[str, Any]) -> bool:
    owner = store.checkpoint(arguments["uuid"]).trial_id
    return (owner, arguments["run_id"]) == (access.trial_id, access.run_id)


def _is_checkpoint_of_experiment(access: RunAccess, store: TrackingStore, arguments: Mapping[str, Any]) -> bool:
    owner = store.checkpoint(arguments["uuid"]).trial_id
    return owner == access.trial_id or store.trial(owner).experiment_id == access.experiment_id


def _is_own_experiment(access: RunAccess, _: TrackingStore, arguments: Mapping[str, Any]) -> bool:
    return bool(arguments["experiment_id"] == access.experiment_id)


def _is_trial_of_experiment(access: RunAccess, store: TrackingStore, arguments: Mapping[str, Any]) -> bool:
    return store.trial(arguments["trial_id"]).experiment_id == access.experiment_id


_ANYTHING = _Rule("anything", lambda access, store, arguments: True)
_OWN_RUN = _Rule("its own trial and run", _is_own_run)
_OF_OWN_RUN = _Rule("records of its own trial and run", _are_of_own_run)
_OWN_EXPERIMENT = _Rule("its own experiment", _is_own_experiment)
_CHECKPOINT_OF_EXPERIMENT = _Rule("checkpoints of its own experiment", _is_checkpoint_of_experiment)

_READING = (
    "best_validation",
    "checkpoint",
    "checkpoint_validations",
    "checkpoints",
    "cluster_id",
    "experiment",
    "experiments",
    "latest_logs",
    "lease_holder",
    "logs",
    "metrics",
    "model_definition",
    "searcher_operation",
    "trial",
    "trial_results",
    "trials",
)
_MODEL_REGISTRY = (
    "add_model_version",
    "create_model",
    "delete_model",
    "delete_model_version",
    "edit_model",
    "edit_model_metadata",
    "edit_model_version",
    "model",
    "model_version",
    "model_versions",
    "models",
)
"""Methods of the model registry, which all experiments share."""

WORKER_METHODS: Mapping[str, _Rule] = {
    **dict.fromkeys((*_READING, *_MODEL_REGISTRY), _ANYTHING),
    # A run may start from a checkpoint of any experiment, and is the first to find that it is damaged.
    "fail_checkpoint": _ANYTHING,
    "acknowledge_preemption": _OWN_RUN,
    "add_trial_source": _OWN_RUN,
    "begin_checkpoint": _OWN_RUN,
    "complete_searcher_operation": _OWN_RUN,
    "report_early_exit": _OWN_RUN,
    "set_runner_state": _OWN_RUN,
    "set_trial_metadata": _OWN_RUN,
    "set_trial_progress": _OWN_RUN,
    "set_trial_total": _OWN_RUN,
    "report_metrics": _OF_OWN_RUN,
    "report_system_metrics": _OF_OWN_RUN,
    "complete_checkpoint": _Rule("checkpoints of its own trial and run", _is_own_checkpoint),
    "delete_checkpoint": _CHECKPOINT_OF_EXPERIMENT,
    "edit_checkpoint_metadata": _CHECKPOINT_OF_EXPERIMENT,
    "edit_experiment": _OWN_EXPERIMENT,
    "request_experiment_state": _OWN_EXPERIMENT,
    "request_trial_end": _Rule("trials of its own experiment", _is_trial_of_experiment),
}
"""Methods that the Core API, the SDK and the frameworks call in workers, and the arguments that are permitted."""
