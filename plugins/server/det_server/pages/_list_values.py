"""Values by which a list is filtered and sorted, and which are its columns, as its URL names them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from det_core.errors import CallTooLarge, FilterError, UnwritableText
from det_core.text import mask_references
from det_server.pages._view import ListView

if TYPE_CHECKING:
    from det_core.interfaces.server_store import ServerStore

NAMES = ("where", "columns")
"""Names of values of the URL."""
_MOST_COLUMNS = 20
_LONGEST_NAME = 100

ColumnValues = Mapping[int, Mapping[str, float | str | None]]
"""Values by id of the trial and name of the column."""
NO_VALUES: ColumnValues = {}

_Read = TypeVar("_Read")


def has_numbers(name: str, each: Iterable[Mapping[str, object]]) -> bool:
    """Return whether a value is a number in all mappings that have it."""
    return all(isinstance(values.get(name), float | int | None) for values in each)


def read_filtered(read: Callable[[], _Read], otherwise: _Read) -> tuple[_Read, str]:
    """Return a list, or an empty one and what is wrong with its filter or sort key.

    Args:
        read: function that reads the list.
        otherwise: the empty one.
    """
    try:
        return read(), ""
    except (FilterError, UnwritableText, CallTooLarge) as error:
        return otherwise, str(error)


def chosen_columns(view: ListView) -> list[str]:
    """Return the names of the columns that the URL of a list names, at most `_MOST_COLUMNS`."""
    names = (name.strip().strip("`")[:_LONGEST_NAME] for name in view.get("columns").split(","))
    return list(dict.fromkeys(filter(None, names)))[:_MOST_COLUMNS]


def read_columns(store: ServerStore, trial_ids: Collection[int], names: Sequence[str]) -> ColumnValues:
    """Return values of trials by the names of their columns, without secrets."""
    return {
        trial_id: {
            name: mask_references(value) if isinstance(value, str) else value
            for name, value in zip(names, values, strict=True)
        }
        for trial_id, values in (store.values_of_trials(trial_ids, names) if names else {}).items()
    }
