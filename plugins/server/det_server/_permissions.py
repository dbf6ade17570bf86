"""Permissions of people on the tracking store, one entry for every method.

A method that is in no table may be called by nobody. The methods that read are a table of `det_core.tracking.remote`.
"""

from __future__ import annotations

from collections.abc import Mapping

from det_core.interfaces.account_records import Role
from det_core.tracking.remote import ACCOUNT_METHODS, READING_METHODS
from det_server._principal import Principal
from det_server._refusal import RefusedError

_VIEWER = READING_METHODS - ACCOUNT_METHODS
_USER = (
    "acknowledge_preemption",
    "acquire_lease",
    "add_logs",
    "add_model_version",
    "add_trial_source",
    "begin_checkpoint",
    "complete_checkpoint",
    "complete_searcher_operation",
    "continue_experiment",
    "count_interruption",
    "count_restart",
    "create_experiment",
    "create_model",
    "create_trial",
    "delete_checkpoint",
    "delete_experiment",
    "delete_model",
    "delete_model_version",
    "edit_checkpoint_metadata",
    "edit_experiment",
    "edit_model",
    "edit_model_metadata",
    "edit_model_version",
    "end_run",
    "fail_checkpoint",
    "forget_search",
    "record_search",
    "release_lease",
    "renew_lease",
    "report_early_exit",
    "report_metrics",
    "report_system_metrics",
    "request_experiment_state",
    "request_trial_end",
    "set_experiment_progress",
    "set_experiment_state",
    "set_runner_state",
    "set_searcher_operation",
    "set_trial_metadata",
    "set_trial_placement",
    "set_trial_progress",
    "set_trial_state",
    "set_trial_total",
    "start_run",
)
_ADMIN = ("access_tokens", "actions", "delete_access_token", "user", "users")
SERVER_ONLY = frozenset(
    (
        "access_token",
        "add_access_token",
        "create_user",
        "edit_user",
        "extend_access_token",
        "password_hash",
        "record_action",
    )
)
"""Methods that no client may call, because they take or return hashes, or write the audit log."""
PERMITTED: Mapping[Role, frozenset[str]] = {
    Role.VIEWER: _VIEWER,
    Role.USER: frozenset((*_VIEWER, *_USER)),
    Role.ADMIN: frozenset((*_VIEWER, *_USER, *_ADMIN)),
}
"""Methods of the tracking store that each role may call."""


def check_method(principal: Principal, method: str) -> None:
    """Check that a person may call a method of the tracking store.

    Raises:
        RefusedError: the role does not permit it.
    """
    if method in PERMITTED[principal.role]:
        return
    if method in SERVER_ONLY:
        raise RefusedError(403, f"no client may call {method}; to manage users: det user, on the host of the server")
    role = next((role for role in (Role.USER, Role.ADMIN) if method in PERMITTED[role]), None)
    if role is None:
        raise RefusedError(
            404, f"the tracking store has no method {method:.100}; install the same release on both sides"
        )
    raise RefusedError(
        403, f"{principal.name} has the role {principal.role} here, and {method} needs {role}; ask an admin for it"
    )
