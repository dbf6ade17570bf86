"""Parsing, validation and serialization of the experiment config.

Names are imported on first use, so that workers, which need few of them, do not import pydantic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from det_core.lazy import lazy_exports

if TYPE_CHECKING:
    from det_core.config._assignments import note_changes as note_changes
    from det_core.config._assignments import parse_assignments as parse_assignments
    from det_core.config._block import Block as Block
    from det_core.config._block import Count as Count
    from det_core.config._block import Flag as Flag
    from det_core.config._block import Number as Number
    from det_core.config._block import Positive as Positive
    from det_core.config._block import PositiveLength as PositiveLength
    from det_core.config._entrypoint import is_command as is_command
    from det_core.config._experiment import ExperimentConfig as ExperimentConfig
    from det_core.config._grid import grid_axes as grid_axes
    from det_core.config._grid import grid_points as grid_points
    from det_core.config._hyperparameters import HyperparameterPath as HyperparameterPath
    from det_core.config._hyperparameters import choose_hyperparameters as choose_hyperparameters
    from det_core.config._hyperparameters import explore_hyperparameters as explore_hyperparameters
    from det_core.config._hyperparameters import match_hyperparameters as match_hyperparameters
    from det_core.config._hyperparameters import sample_hyperparameters as sample_hyperparameters
    from det_core.config._json_schema import config_schema as config_schema
    from det_core.config._length import Length as Length
    from det_core.config._length import Unit as Unit
    from det_core.config._parse import load_config as load_config
    from det_core.config._parse import parse_config as parse_config
    from det_core.config._plugin_blocks import CheckpointStorageConfig as CheckpointStorageConfig
    from det_core.config._plugin_blocks import DistributedConfig as DistributedConfig
    from det_core.config._plugin_blocks import LauncherConfig as LauncherConfig
    from det_core.config._plugin_blocks import NoOptions as NoOptions
    from det_core.config._plugin_blocks import ObserverConfig as ObserverConfig
    from det_core.config._plugin_blocks import SearcherConfig as SearcherConfig
    from det_core.config._validation_errors import explain_block as explain_block

_EXPORTS = {
    "Block": "det_core.config._block",
    "CheckpointStorageConfig": "det_core.config._plugin_blocks",
    "Count": "det_core.config._block",
    "DistributedConfig": "det_core.config._plugin_blocks",
    "ExperimentConfig": "det_core.config._experiment",
    "Flag": "det_core.config._block",
    "HyperparameterPath": "det_core.config._hyperparameters",
    "LauncherConfig": "det_core.config._plugin_blocks",
    "Length": "det_core.config._length",
    "NoOptions": "det_core.config._plugin_blocks",
    "Number": "det_core.config._block",
    "ObserverConfig": "det_core.config._plugin_blocks",
    "Positive": "det_core.config._block",
    "PositiveLength": "det_core.config._block",
    "SearcherConfig": "det_core.config._plugin_blocks",
    "Unit": "det_core.config._length",
    "choose_hyperparameters": "det_core.config._hyperparameters",
    "config_schema": "det_core.config._json_schema",
    "explain_block": "det_core.config._validation_errors",
    "explore_hyperparameters": "det_core.config._hyperparameters",
    "grid_axes": "det_core.config._grid",
    "grid_points": "det_core.config._grid",
    "is_command": "det_core.config._entrypoint",
    "load_config": "det_core.config._parse",
    "match_hyperparameters": "det_core.config._hyperparameters",
    "note_changes": "det_core.config._assignments",
    "parse_assignments": "det_core.config._assignments",
    "parse_config": "det_core.config._parse",
    "replace_texts": "det_core.config._yaml",
    "sample_hyperparameters": "det_core.config._hyperparameters",
}

_OWN = {
    "CheckpointStorageConfig",
    "Count",
    "DistributedConfig",
    "Flag",
    "LauncherConfig",
    "ObserverConfig",
    "SearcherConfig",
    "explain_block",
    "grid_axes",
    "grid_points",
    "is_command",
    "parse_assignments",
    "replace_texts",
}
"""Names for the modules of det-core, which the contract does not promise."""

__all__ = [name for name in _EXPORTS if name not in _OWN]

__getattr__, __dir__ = lazy_exports(globals(), _EXPORTS)
