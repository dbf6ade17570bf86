"""Command ``det logout``, which ends a session on a det server."""

from __future__ import annotations

import argparse
from contextlib import closing, suppress

from det_core.cli._command_table import JSON, set_up_command
from det_core.cli.commands.login import URL, server_url
from det_core.cli.render.printing import print_json
from det_core.errors import TrackingError
from det_core.tracking.access_tokens import delete_token, find_token, remember_token
from det_core.tracking.remote import ServerConnection


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to the parser."""
    set_up_command(parser, _run, (URL, JSON), "https://det.example.org")


def _run(args: argparse.Namespace) -> int:
    url = remember_token(server_url(args))
    if find_token(url):
        with suppress(TrackingError), closing(ServerConnection(url, wait=0)) as server:  # the server may be gone
            server.post("/api/logout", {})
    was_saved = delete_token(url)
    if args.json:
        print_json({"url": url, "was_logged_in": was_saved})
    else:
        print(f"Logged out at {url}" if was_saved else f"No token for {url} was saved")
    return 0
