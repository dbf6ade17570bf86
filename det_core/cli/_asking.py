"""Asking the person at the terminal before something is gone."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import suppress

from det_core.cli._command import UsageError
from det_core.tracking.printable import printable


def agreed(question: str, notes: Iterable[str] = (), *, as_json: bool) -> bool:
    """Whether the answer is yes.

    Args:
        notes: lines to know before answering.

    Raises:
        UsageError: nobody can be asked.
    """
    if as_json or not sys.stdin.isatty():
        raise UsageError("nobody can be asked here whether to remove for good; if so, pass --yes")
    for note in notes:
        print(note)
    answer = ""
    with suppress(EOFError):  # Ctrl-D
        answer = input(f"{printable(question)} [y/N] ")  # Python writes the prompt past `sys.stdout`
    return answer.lower() in ("y", "yes")
