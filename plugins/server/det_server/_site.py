"""The parts that all requests share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPS_PORT
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from starlette.requests import Request

from det_server._curve_cache import CurveCache
from det_server._importances import Importances
from det_server._principal import Principal

if TYPE_CHECKING:
    from det_core.interfaces.server_store import ServerStore
    from det_server._access import Access
    from det_server._live_changes import LiveChanges
    from det_server._runner_keeper import RunnerKeeper


@dataclass(frozen=True, kw_only=True)
class Site:
    """Parts of a server that all requests share. Endpoints get it with `site_of`."""

    store: ServerStore
    """The tracking store."""
    url: str
    """URL of the server, without a slash at the end."""
    access: Access
    """The rules on who may call."""
    changes: LiveChanges
    """Source of the live updates of pages."""
    keeper: RunnerKeeper
    """Background thread that keeps submitted experiments running."""
    checkpoint_storage: Mapping[str, Any] | None
    """Storage of experiments that are submitted without one, or None for a directory next to the database."""
    offered_storage: Mapping[str, Any] | None
    """The same for experiments that clients train, without secrets. None if it is a directory of the server."""
    curves: CurveCache = field(init=False)
    """Reader of the curves of charts."""
    importances: Importances = field(init=False)
    """Importances of the hyperparameters of searches."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "curves", CurveCache(self.store))
        object.__setattr__(self, "importances", Importances())

    @property
    def has_users(self) -> bool:
        """Whether people log in. Otherwise, a token in the URL identifies the only user."""
        return self.access.has_users

    @property
    def is_secure(self) -> bool:
        """Whether browsers connect with TLS."""
        return self.url.startswith("https:")

    @property
    def owns_host(self) -> bool:
        """Whether it has the default port of HTTPS. Otherwise, other ports of its host may have servers without TLS."""
        return self.is_secure and urlsplit(self.url).port in (None, HTTPS_PORT)


def site_of(request: Request) -> Site:
    """Return the site of a request."""
    return cast("Site", request.app.state.site)


def principal_of(request: Request) -> Principal:
    """Return the caller of an admitted request."""
    return cast("Principal", request.state.principal)
