"""Tracking store as a person calls it through the API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from det_core.interfaces.tracking import TrackingStore

AUDITED: Mapping[str, str] = {
    "continue_experiment": "experiment_id",
    "delete_access_token": "token_id",
    "delete_checkpoint": "uuid",
    "delete_experiment": "experiment_id",
    "delete_model": "name",
    "delete_model_version": "name",
    "edit_experiment": "experiment_id",
    "request_experiment_state": "experiment_id",
    "request_trial_end": "trial_id",
}
"""Methods that people call to change records of others, mapped to the argument that names the record."""
_OWNED = ("add_model_version", "create_experiment", "create_model")
"""Methods with an argument ``owner``."""


class PersonsStore:
    """Tracking store that records what a person does, and to whom new records belong.

    Args:
        store: the tracking store.
        owner: owner of new records, whatever owner the client names, or None to believe the client.
        record: function that records an action and its target in the audit log.
    """

    def __init__(self, store: TrackingStore, owner: str | None, record: Callable[[str, str], None]) -> None:
        self._store = store
        self._owner = owner
        self._record = record

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._store, name)
        if name not in AUDITED and (name not in _OWNED or self._owner is None):
            return member
        return lambda **arguments: self._call(name, member, arguments)

    def _call(self, name: str, member: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        if name in _OWNED and self._owner is not None:
            arguments["owner"] = self._owner
        result = member(**arguments)
        if name in AUDITED:
            self._record(name, f"{AUDITED[name]} {arguments[AUDITED[name]]}")
        return result
