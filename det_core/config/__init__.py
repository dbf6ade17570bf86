"""Parsing, validation and serialization of the experiment config."""

from __future__ import annotations

from det_core.config._assignments import note_changes as note_changes
from det_core.config._assignments import parse_assignments as parse_assignments
from det_core.config._block import Block as Block
from det_core.config._block import Count as Count
from det_core.config._block import Flag as Flag
from det_core.config._block import Number as Number
from det_core.config._block import Positive as Positive
from det_core.config._entrypoint import is_command as is_command
from det_core.config._experiment import ExperimentConfig as ExperimentConfig
from det_core.config._grid import grid_axes as grid_axes
from det_core.config._grid import grid_points as grid_points
from det_core.config._hyperparameters import Hyperparameter as Hyperparameter
from det_core.config._hyperparameters import explore_hyperparameters as explore_hyperparameters
from det_core.config._hyperparameters import sample_hyperparameters as sample_hyperparameters
from det_core.config._json_schema import config_schema as config_schema
from det_core.config._length import Length as Length
from det_core.config._length import PositiveLength as PositiveLength
from det_core.config._length import Unit as Unit
from det_core.config._parse import load_config as load_config
from det_core.config._parse import parse_config as parse_config
from det_core.config._plugin_blocks import CheckpointStorageConfig as CheckpointStorageConfig
from det_core.config._plugin_blocks import DistributedConfig as DistributedConfig
from det_core.config._plugin_blocks import LauncherConfig as LauncherConfig
from det_core.config._plugin_blocks import NoOptions as NoOptions
from det_core.config._plugin_blocks import ObserverConfig as ObserverConfig
from det_core.config._plugin_blocks import SearcherConfig as SearcherConfig
from det_core.config._secrets import replace_texts as replace_texts
from det_core.config._validation_errors import explain_block as explain_block
from det_core.interfaces.secrets import MASK as MASK
from det_core.interfaces.secrets import Secret as Secret
from det_core.interfaces.secrets import iter_texts as iter_texts
from det_core.interfaces.secrets import map_text as map_text

__all__ = [
    "Block",
    "CheckpointStorageConfig",
    "Count",
    "DistributedConfig",
    "ExperimentConfig",
    "Flag",
    "Hyperparameter",
    "LauncherConfig",
    "Length",
    "MASK",
    "NoOptions",
    "Number",
    "ObserverConfig",
    "Positive",
    "PositiveLength",
    "SearcherConfig",
    "Secret",
    "Unit",
    "parse_assignments",
    "config_schema",
    "explain_block",
    "explore_hyperparameters",
    "grid_axes",
    "grid_points",
    "is_command",
    "load_config",
    "map_text",
    "note_changes",
    "parse_config",
    "replace_texts",
    "sample_hyperparameters",
    "iter_texts",
]
