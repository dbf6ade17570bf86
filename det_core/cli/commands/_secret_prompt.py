"""Prompt for secrets that an experiment's config refers to and this host does not have."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from getpass import getpass
from typing import Any


def ask_for_secrets(config: Mapping[str, Any]) -> None:
    """Ask the person at the terminal for each missing secret once, and write its file.

    Args:
        config: the recorded config, which contains references to secrets.
    """
    from det_core.tracking.printable import printable_text
    from det_core.tracking.secret_files import find_missing_secrets, write_secret

    files = {path: place for place, path in find_missing_secrets(config).items()}
    with suppress(EOFError):  # Ctrl-D skips the remaining secrets, and resume reports that they are missing
        for path, place in files.items():
            if secret := getpass(printable_text(f"{place} is not in {path}. Its value: ")):
                write_secret(path, secret)
