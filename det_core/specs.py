"""What registration hooks yield: one frozen dataclass per kind of plugin.

A spec is light. It names its implementation as ``"module:attribute"``, which is imported when
the config first selects it; so a plugin's entry-point module never imports the framework it serves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

API = 1
"""The version of the contract between det-core and its plugins."""


@dataclass(frozen=True, kw_only=True)
class Spec:
    """Common to all kinds.

    Args:
        name: what a config writes to select it; unique within its kind.
        target: ``"module:attribute"`` of the implementation.
        config_model: ``"module:Model"``, a pydantic model of the config block; None = no options.
        install: the command that completes the installation when the target fails to import.
        api: the contract the plugin was written for.
    """

    name: str
    target: str
    config_model: str | None = None
    install: str = ""
    api: int = API


@dataclass(frozen=True, kw_only=True)
class FrameworkSpec(Spec):
    """``target(trial_class, core_context)`` trains one trial to its end (`interfaces.framework`).

    Args:
        loading: Python lines that load a checkpoint; ``{path}`` stands for its directory. Shown for checkpoints
            whose metadata names this framework under ``trial_framework``.
        load: ``"module:attribute"`` of what ``Checkpoint.load`` calls for such checkpoints:
            ``load(path, tags=tags, **kwargs)`` with their directory and what its caller gave.
        old_names: what checkpoints of the original say that this framework reads: a ``trial_type`` (in
            ``load_data.json``), a ``format``, or a ``framework`` without its version (in ``metadata.json``).
    """

    loading: str = ""
    load: str | None = None
    old_names: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class BackendSpec(Spec):
    """A distributed backend; ``adapters`` maps each framework's name to ``"module:adapter"``."""

    adapters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class StorageSpec(Spec):
    """``target(config)`` makes an `interfaces.storage.StorageManager`."""


@dataclass(frozen=True, kw_only=True)
class LauncherSpec(Spec):
    """``target(config)`` makes an `interfaces.launcher.Launcher`."""


@dataclass(frozen=True, kw_only=True)
class SearchMethodSpec(Spec):
    """``target(config, hyperparameters, seed)`` makes an `interfaces.search_method.SearchMethod`.

    Its config model may have ``check_hyperparameters(hyperparameters)``, which raises a ``PydanticCustomError`` for
    what it cannot search.
    """


@dataclass(frozen=True, kw_only=True)
class CommandSpec(Spec):
    """``target(parser)`` adds arguments to ``det NAME`` and sets ``run=function(args) -> int``."""

    help: str = ""
