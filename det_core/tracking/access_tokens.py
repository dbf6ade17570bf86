"""Access tokens of det servers, in a file under ``DET_HOME`` that only this user can read.

``det login`` and a server that this user runs on this host write tokens to it. A token in the URL of a server, and the
environment variable ``DET_TOKEN`` for the server that ``DET_MASTER`` names, take precedence over the file.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from det_core.errors import TrackingError
from det_core.home import default_master, home_directory
from det_core.tracking.remote._server_address import parse_server_url
from det_core.tracking.secret_files import write_secret

__all__ = ["save_token"]

TOKEN_VARIABLE = "DET_TOKEN"  # noqa: S105  (the name of a variable)
"""Environment variable with the token for the server that `MASTER_VARIABLES` names."""

_TOKEN = re.compile(r"[!-~]+")
_given: dict[str, str] = {}
"""Tokens from URLs that this process has used, by the URL without the token."""


def remember_token(url: str) -> str:
    """Return the URL of a server without the token that it may contain, and remember the token in this process.

    Raises:
        TrackingError: as `det_core.tracking.open_store`.
    """
    address, token = parse_server_url(url)
    if token:
        _given[address.url] = token
    return address.url


def given_token(url: str) -> str | None:
    """Return the token that a URL of a server contained in this process, or None if there was none."""
    return _given.get(url)


def forget_token(url: str) -> None:
    """Forget the token that a URL of a server contained, because a server that was started again has another one."""
    _given.pop(url, None)


def use_token(url: str, token: str) -> None:
    """Use a token for a server in this process, in place of a saved one."""
    _given[remember_token(url)] = token


def find_token(url: str) -> str | None:
    """Return the token for a server, or None if there is none.

    Args:
        url: URL of the server without a token.

    Raises:
        TrackingError: what should be the token cannot be one. The message does not show it.
    """
    named = os.environ.get(TOKEN_VARIABLE) if is_meant(url) else None
    token = _given.get(url) or named or _read(_file()).get(url)
    if token and not _TOKEN.fullmatch(token):
        raise TrackingError(
            f"the token for {url}{f' in {TOKEN_VARIABLE}' if token == named else ''} has a line break, a space or "
            f"another character that no token has; log in again with: det login {url}"
        )
    return token


def save_token(url: str, token: str) -> None:
    """Save the token for a server, in place of an earlier one.

    Args:
        url: URL of the server.
        token: token that the server has issued.
    """
    with _changed_tokens() as tokens:
        tokens[remember_token(url)] = token
    _given.pop(remember_token(url), None)


def delete_token(url: str) -> bool:
    """Delete the saved token for a server.

    Args:
        url: URL of the server.

    Returns:
        Whether there was one.
    """
    with _changed_tokens() as tokens:
        return tokens.pop(remember_token(url), None) is not None


def is_meant(url: str) -> bool:
    """Return whether ``DET_TOKEN`` is meant for a server. Other servers must not receive it.

    Args:
        url: URL of the server without a token.
    """
    master = default_master()
    try:
        return master is not None and parse_server_url(master)[0].url == url
    except TrackingError:  # such as a database
        return False


@contextmanager
def _changed_tokens() -> Iterator[dict[str, str]]:
    """Return the saved tokens, and save the changed ones at the end of the block."""
    path = _file()
    with path.with_suffix(".lock").open("a", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = _read(path)
        tokens = dict(before)
        yield tokens
        if tokens != before:
            write_secret(path, json.dumps(tokens, indent=2, sort_keys=True))


def _read(path: Path) -> Mapping[str, str]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise TrackingError(f"the tokens of servers in {path} cannot be read ({error}); delete it and log in") from None
    return found if isinstance(found, dict) else {}


def _file() -> Path:
    return home_directory() / "tokens.json"
