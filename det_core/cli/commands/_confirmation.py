"""Confirmation by the person at the terminal before something is removed."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import suppress

from det_core.cli._command_table import UsageError
from det_core.tracking.printable import printable_text


def confirm_removal(question: str, notes: Iterable[str] = (), *, as_json: bool) -> bool:
    """Ask the person at the terminal, and return whether the answer is yes.

    Args:
        question: the question, to be answered with yes or no.
        notes: lines to print before the question.
        as_json: whether the command prints JSON, so that it cannot ask.

    Raises:
        UsageError: the command prints JSON, or stdin is not a terminal.
    """
    if as_json or not sys.stdin.isatty():
        raise UsageError("cannot ask for confirmation with --json or without a terminal; to confirm, pass --yes")
    for note in notes:
        print(note)
    answer = ""
    with suppress(EOFError):  # Ctrl-D
        answer = input(f"{printable_text(question)} [y/N] ")  # bypasses `sys.stdout`, which removes escapes
    return answer.lower() in ("y", "yes")
