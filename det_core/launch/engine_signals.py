"""Signals that an engine sends to all processes of a node at once, such as those of ``scancel``.

The node agent passes the request on to the workers. The programs between agent and workers must outlive the workers,
so they ignore SIGTERM. Their children have the default action again. SIGUSR1 and SIGUSR2, with which some engines warn,
are ignored by all processes that do not handle them. The default action of SIGURG is to be ignored.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence

from det_core.launch._guard import ENGINE_VARIABLE

__all__ = ["shield_from_engine"]

ENGINE_VARIABLES: Mapping[str, str] = {ENGINE_VARIABLE: "1"}
"""Environment variables of processes that an engine may send signals to."""


def shield_from_engine() -> bool:
    """Ignore SIGTERM if this process belongs to an engine, and return whether it does.

    Child processes do not inherit this. Must be called in the main thread.
    """
    belongs = ENGINE_VARIABLE in os.environ
    if belongs:
        signal.signal(signal.SIGTERM, lambda number, frame: None)
    return belongs


def shield_shell(argv: Sequence[str]) -> list[str]:
    """Return a command line in which a shell ignores SIGTERM. Other commands remain as they are."""
    shell, *rest = argv
    if shell == "/bin/sh" and len(rest) == 2 and rest[0] == "-c":
        return [shell, "-c", f"trap : TERM; {rest[1]}"]
    return list(argv)
