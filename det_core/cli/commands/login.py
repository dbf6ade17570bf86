"""Command ``det login``, which gets an access token from a det server."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing
from getpass import getpass

from det_core.cli._command_table import JSON, make_argument, set_up_command
from det_core.cli.render.printing import print_json
from det_core.errors import DetError
from det_core.home import default_master, user_name
from det_core.tracking import is_server_url
from det_core.tracking.access_tokens import given_token, remember_token, save_token, use_token
from det_core.tracking.remote import ServerConnection


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to the parser."""
    set_up_command(parser, _run, (URL, _USER, JSON), "https://det.example.org --user ada")


def server_url(args: argparse.Namespace) -> str:
    """Return the URL of the server that a command is about, possibly with a token.

    Raises:
        DetError: neither the arguments nor the environment name a server.
    """
    url: str = args.url or default_master() or ""
    if not is_server_url(url):
        raise DetError(f"{url or 'no URL'} is not that of a det server; give one: det {args.command} https://HOST:PORT")
    return url


def _run(args: argparse.Namespace) -> int:
    url = remember_token(server_url(args))
    link = given_token(url)
    proof = {"link": link} if link else _ask_for_password(url, args.user or _ask_for_name())
    with closing(ServerConnection(url)) as server:
        token = str(server.post("/api/login", proof)["token"])
    use_token(url, token)
    with closing(ServerConnection(url)) as server:
        known = server.get("/api/info")
    save_token(url, token)
    if args.json:
        print_json({"url": url, "user": known.get("user"), "role": known.get("role")})
    else:
        print(f"Logged in at {url} as {known.get('user')} ({str(known.get('role')).lower()})")
        print(f"To use it: det -m {url} experiment list, or set DET_MASTER={url}")
    return 0


def _ask_for_password(url: str, user: str) -> dict[str, str]:
    """Return the name and the password of a user, which is read from the terminal or from stdin."""
    password = getpass(f"Password of {user} at {url}: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    return {"user": user, "password": password}


def _ask_for_name() -> str:
    if not sys.stdin.isatty():
        return user_name()
    return input(f"User [{user_name()}]: ").strip() or user_name()


URL = make_argument("url", nargs="?", metavar="URL", help="URL of the server; default: DET_MASTER")
_USER = make_argument("--user", metavar="NAME", help="name of the user; default: asked for")
