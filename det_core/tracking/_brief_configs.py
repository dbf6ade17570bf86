"""Configs of experiments for lists, which keep few values of one that is large."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Text, case, func, type_coerce

from det_core.interfaces.records import LONGEST_BRIEF, Shortened
from det_core.json_values import EncodedJson, dump_json_value, load_json_value
from det_core.tracking._schema import experiments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import ColumnElement

    from det_core.tracking._database import Database

_KEPT = (
    *(("searcher", name) for name in ("metric", "smaller_is_better", "max_length", "length_per_round", "num_rounds")),
    *(("resources", name) for name in ("slots_per_trial", "min_slots_per_trial")),
    *(("searcher", name) for name in ("source_checkpoint_uuid", "source_trial_id")),
    ("checkpoint_storage",),
    ("project",),
    ("workspace",),
)
"""Paths of the values of a large config that lists of experiments of several people use."""


def brief_config_column(database: Database) -> ColumnElement[Any]:
    """Return an SQL expression for what `brief_config` takes. The database looks into large configs."""
    text = type_coerce(experiments.c.config, Text)
    kept = func.coalesce(database.json_array(experiments.c.config, _KEPT), text)
    return case((func.length(text) <= LONGEST_BRIEF, text), else_=kept).label("config")


def brief_config(text: str) -> Mapping[str, Any]:
    """Return a config, or of one that is large only what lists use.

    Args:
        text: the config as JSON, or the array of these values.
    """
    if not text.startswith("[") and len(text) <= LONGEST_BRIEF:
        return EncodedJson(text)
    found = load_json_value(text)
    values = found if isinstance(found, list) else [_value_at(found, path) for path in _KEPT]
    brief = Shortened()
    for path, value in zip(_KEPT, values, strict=True):
        if value is not None and len(dump_json_value(value)) <= LONGEST_BRIEF:
            (brief.setdefault(path[0], {}) if len(path) > 1 else brief)[path[-1]] = value
    return brief


def _value_at(value: Any, path: Sequence[str]) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value
