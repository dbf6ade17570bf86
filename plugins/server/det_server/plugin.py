"""Registration of the commands ``det server`` and ``det user`` with det."""

from __future__ import annotations

from collections.abc import Iterator

import det_core
from det_core.specs import CommandSpec


@det_core.hookimpl
def det_commands() -> Iterator[CommandSpec]:
    """Yield the specifications of the commands."""
    target = "det_server._server_command:configure"
    yield CommandSpec(name="server", target=target, help="show experiments in a browser")
    report = "write a report that compares trials, as one HTML file"
    yield CommandSpec(name="compare", target="det_server._compare_command:configure", help=report)
    yield CommandSpec(name="user", target="det_server._user_command:configure", help="manage the users of a server")
