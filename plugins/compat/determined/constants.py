"""Constants for old code."""

from __future__ import annotations

from det_core.config import parse_config
from det_core.trial import DEFAULT_SEARCHER

_KEYS = ("searcher", "scheduling_unit", "resources", "optimizations")
_WHOLE = parse_config({"searcher": DEFAULT_SEARCHER}).dump()

DEFAULT_EXP_CFG = {key: _WHOLE[key] for key in _KEYS}
"""Defaults for keys that the config of `determined.TrialContext.from_config` does not contain."""
