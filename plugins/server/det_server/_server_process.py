"""Start of a server, with the checks of its options, its socket and its parts."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from det_core.errors import DetError
from det_core.interfaces.account_records import Role
from det_core.interfaces.server_store import ServerStore
from det_core.tracking.webhook_delivery import deliver_webhooks
from det_server._access import Access, AccountAccess, LocalAccess
from det_server._allowed_origins import LOOPBACK_NAMES, AllowedHosts, host_in_url, is_loopback
from det_server._listener import BoundedListener
from det_server._log_lines import LineFilter
from det_server._own_store import open_own_store
from det_server._signatures import load_signing_key

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from det_server._site import Site

_LAST_PORT = 65535


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Options of ``det server``."""

    store: str | None
    """URL of the tracking store, or None for the embedded one."""
    host: str
    """Address to listen at."""
    port: int
    """Port, or 0 for any free one."""
    users: bool
    """Whether people log in."""
    checkpoint_storage: Path | None
    """File with the storage of experiments that are submitted without one, or None for a directory in DET_HOME."""
    tls_cert: Path | None
    """File with the certificate."""
    tls_key: Path | None
    """File with its key."""
    proxy_hosts: Sequence[str]
    """Names that a reverse proxy with TLS has for this server."""
    browser: bool
    """Whether to open a browser."""

    @property
    def certificate(self) -> tuple[Path, Path] | None:
        """The certificate and its key, or None without TLS."""
        return (self.tls_cert, self.tls_key) if self.tls_cert and self.tls_key else None


def run_server(options: ServerOptions) -> int:
    """Serve until the process is asked to stop, and return the exit code.

    Raises:
        DetError: the options would expose the store, or the server cannot start.
    """
    check_exposure(options)
    hosts = list_allowed_hosts(options)
    with open_own_store(options.store) as store, _listen(options) as listener:
        access = _choose_access(options, store)
        with deliver_webhooks(store):
            _serve(options, store, access, hosts, listener)
    return 0


def check_exposure(options: ServerOptions) -> None:
    """Check that nobody without an account, and nobody who listens to the network, can use the server.

    Raises:
        DetError: an option is missing. The message says what to type.
    """
    if (options.tls_cert is None) is not (options.tls_key is None):
        raise DetError("TLS needs both files: --tls-cert CERT.pem --tls-key KEY.pem")
    if options.proxy_hosts and options.certificate:
        raise DetError("--proxy-host is for a proxy that speaks TLS itself; leave out either it or --tls-cert")
    if not options.proxy_hosts and is_loopback(options.host):
        return
    where = f"{next(iter(options.proxy_hosts), options.host)} can be reached from other machines"
    if not options.users:
        raise DetError(
            f"{where}, so people have to log in; add --users, after creating the first account with: "
            "det user create NAME --role admin"
        )
    if not options.certificate and not options.proxy_hosts:
        raise DetError(
            f"{where}, so passwords need TLS; add --tls-cert CERT.pem --tls-key KEY.pem, or --proxy-host NAME if a "
            "reverse proxy with TLS passes requests on"
        )


def list_allowed_hosts(options: ServerOptions) -> AllowedHosts:
    """Return the names under which browsers may reach the server."""
    if options.proxy_hosts:
        return AllowedHosts("https", options.proxy_hosts)
    if options.certificate:
        from det_server._certificate import read_certificate_names

        return AllowedHosts("https", read_certificate_names(*options.certificate))
    return AllowedHosts("http", (host_in_url(options.host), *LOOPBACK_NAMES))


def _listen(options: ServerOptions) -> socket.socket:
    host = options.host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    if not 0 <= options.port <= _LAST_PORT:
        raise DetError(f"--port {options.port}: expected a port up to {_LAST_PORT}, or --port 0 for any free one")
    try:
        listener = socket.create_server((host, options.port), family=family, backlog=256)
    except OSError as error:
        raise DetError(
            f"cannot listen at {options.host}, port {options.port}: {error}; choose another port with --port, such as "
            "--port 0 for any free one"
        ) from None
    return BoundedListener(listener, per_network=not options.proxy_hosts and not is_loopback(options.host))


def _choose_access(options: ServerOptions, store: ServerStore) -> Access:
    if not options.users:
        return LocalAccess(store, load_signing_key())
    admins = [user for user in store.users() if user.role is Role.ADMIN and user.active]
    if not any(store.password_hash(user.name) for user in admins):
        url = f" --store {options.store}" if options.store else ""
        raise DetError(f"no admin can log in yet; create the first one with: det user create NAME --role admin{url}")
    return AccountAccess(store)


def _serve(
    options: ServerOptions, store: ServerStore, access: Access, hosts: AllowedHosts, listener: socket.socket
) -> None:
    from det_server._http_server import make_server

    lines = logging.StreamHandler(sys.stderr)
    lines.addFilter(LineFilter())
    logging.basicConfig(handlers=[lines], level=logging.WARNING, format="det server: %(message)s")
    site, app = make_site(options, store, access, hosts, listener.getsockname()[1])
    server = make_server(app, certificate=options.certificate, on_started=lambda: _announce(options, site.url, access))
    server.run(sockets=[listener])


def make_site(
    options: ServerOptions, store: ServerStore, access: Access, hosts: AllowedHosts, port: int
) -> tuple[Site, ASGIApp]:
    """Return the parts that all requests share, and the application of a server at a port."""
    from det_server._application import make_application
    from det_server._default_storage import offer_storage, read_default_storage
    from det_server._live_changes import LiveChanges
    from det_server._runner_keeper import RunnerKeeper
    from det_server._site import Site

    url = _public_url(options, hosts, port)
    storage = read_default_storage(options.checkpoint_storage) if options.checkpoint_storage else None
    site = Site(
        store=store,
        url=url,
        access=access,
        changes=LiveChanges(store),
        keeper=RunnerKeeper(store),
        checkpoint_storage=storage,
        offered_storage=storage and offer_storage(storage),
    )
    cookie = f"__Host-det-{port}" if site.is_secure else f"det-{port}"  # then other ports and hosts cannot set it
    return site, make_application(site, hosts, behind_proxy=bool(options.proxy_hosts), cookie=cookie)


def _public_url(options: ServerOptions, hosts: AllowedHosts, port: int) -> str:
    if options.proxy_hosts:
        return f"https://{options.proxy_hosts[0]}"
    name = next(iter(hosts.names)).replace("*", "www")
    return f"{hosts.scheme}://{name}:{port}"


def _announce(options: ServerOptions, url: str, access: Access) -> None:
    """Print the URL, and let commands of this user and the browser use it."""
    link = url
    if isinstance(access, LocalAccess):
        from det_core.tracking.access_tokens import save_token

        save_token(url, access.command_line_token)
        link = f"{url}/?token={access.link_token}"
    print(f"det server: {link}", flush=True)  # noqa: T201
    print("to stop it: Ctrl-C", file=sys.stderr, flush=True)  # noqa: T201
    if options.browser and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        from det_server._browser import open_browser

        open_browser(link)
