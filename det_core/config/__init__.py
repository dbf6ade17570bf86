"""The experiment config: read it, check it, write it down again."""

from __future__ import annotations

from det_core.config._block import Block as Block
from det_core.config._block import Positive as Positive
from det_core.config._entrypoint import is_command as is_command
from det_core.config._experiment import ExperimentConfig as ExperimentConfig
from det_core.config._hyperparameters import Hyperparameter as Hyperparameter
from det_core.config._hyperparameters import sample_hyperparameters as sample_hyperparameters
from det_core.config._length import Length as Length
from det_core.config._length import PositiveLength as PositiveLength
from det_core.config._length import Unit as Unit
from det_core.config._parse import load_config as load_config
from det_core.config._parse import parse_config as parse_config
from det_core.config._plugin_blocks import CheckpointStorageConfig as CheckpointStorageConfig
from det_core.config._plugin_blocks import DistributedConfig as DistributedConfig
from det_core.config._plugin_blocks import LauncherConfig as LauncherConfig
from det_core.config._plugin_blocks import SearcherConfig as SearcherConfig
from det_core.config._schema import config_schema as config_schema

__all__ = [
    "Block",
    "CheckpointStorageConfig",
    "DistributedConfig",
    "ExperimentConfig",
    "Hyperparameter",
    "LauncherConfig",
    "Length",
    "Positive",
    "PositiveLength",
    "SearcherConfig",
    "Unit",
    "config_schema",
    "is_command",
    "load_config",
    "parse_config",
    "sample_hyperparameters",
]
