"""The ``--state`` option, and the exit code of a final state."""

from __future__ import annotations

from enum import Enum

from det_core.cli._command_table import FILTERS, Argument, make_argument
from det_core.interfaces.records import State


def exit_code(state: State) -> int:
    """Return 0 if the work is done, else 1."""
    return 0 if state is State.COMPLETED else 1


def state_option(kind: type[Enum] = State) -> Argument:
    """Return the ``--state`` option, which may be repeated.

    Args:
        kind: enumeration of the states that the option accepts.
    """
    known = [state.value for state in kind]
    return make_argument(
        "--state",
        action="append",
        default=[],
        dest="states",
        choices=known,
        type=str.upper,
        metavar="STATE",
        help=f"only in this state; may be repeated: {', '.join(known)}",
        group=FILTERS,
    )
