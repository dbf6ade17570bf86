"""Use of a tracking store from another process or host, through any channel that carries bytes.

The protocol is generated from the annotations of `det_core.interfaces.tracking.TrackingStore`, so a method that is
added there needs no line here. One call of the store is one call of the channel, with the name of the method and the
arguments as JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from det_core.lazy import lazy_exports

if TYPE_CHECKING:
    from det_core.tracking.remote._access import Caller as Caller
    from det_core.tracking.remote._access import RunAccess as RunAccess
    from det_core.tracking.remote._access import require_current as require_current
    from det_core.tracking.remote._agent_socket import AGENT_SURVIVES as AGENT_SURVIVES
    from det_core.tracking.remote._agent_socket import StoreCall as StoreCall
    from det_core.tracking.remote._agent_socket import open_agent_store as open_agent_store
    from det_core.tracking.remote._agent_socket import requests_store_calls as requests_store_calls
    from det_core.tracking.remote._agent_socket import serve_store_calls as serve_store_calls
    from det_core.tracking.remote._answers import answer_call as answer_call
    from det_core.tracking.remote._calls import MAX_READING_BYTES as MAX_READING_BYTES
    from det_core.tracking.remote._calls import RETURNED_NOTHING as RETURNED_NOTHING
    from det_core.tracking.remote._calls import dump_error as dump_error
    from det_core.tracking.remote._calls import find_method as find_method
    from det_core.tracking.remote._calls import has_code as has_code
    from det_core.tracking.remote._calls import is_writing as is_writing
    from det_core.tracking.remote._calls import load_values as load_values
    from det_core.tracking.remote._calls import max_call_bytes as max_call_bytes
    from det_core.tracking.remote._codecs import MAX_BODY_BYTES as MAX_BODY_BYTES
    from det_core.tracking.remote._codecs import load_base64 as load_base64
    from det_core.tracking.remote._remote_store import open_remote_store as open_remote_store
    from det_core.tracking.remote._served_storage import ServedStorage as ServedStorage
    from det_core.tracking.remote._server_connection import ServerConnection as ServerConnection
    from det_core.tracking.remote._server_connection import open_server_store as open_server_store
    from det_core.tracking.remote._versions import explain_version_mismatch as explain_version_mismatch

_MODULES = {
    "_access": ("Caller", "RunAccess", "require_current"),
    "_agent_socket": (
        "AGENT_SURVIVES",
        "StoreCall",
        "open_agent_store",
        "requests_store_calls",
        "serve_store_calls",
    ),
    "_calls": (
        "MAX_READING_BYTES",
        "RETURNED_NOTHING",
        "dump_error",
        "find_method",
        "has_code",
        "is_writing",
        "load_values",
        "max_call_bytes",
    ),
    "_codecs": ("MAX_BODY_BYTES", "load_base64"),
    "_answers": ("answer_call",),
    "_remote_store": ("open_remote_store",),
    "_server_connection": ("ServerConnection", "open_server_store"),
    "_served_storage": ("ServedStorage",),
    "_versions": ("explain_version_mismatch",),
}
_EXPORTS = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names}

_OWN = {
    "ServedStorage",
    "ServerConnection",
    "StoreCall",
    "dump_error",
    "open_agent_store",
    "open_server_store",
    "requests_store_calls",
    "serve_store_calls",
}
"""Names for the modules of det-core, which the contract does not promise."""

__all__ = [name for name in _EXPORTS if name not in _OWN]

__getattr__, __dir__ = lazy_exports(globals(), _EXPORTS)
