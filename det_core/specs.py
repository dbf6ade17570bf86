"""Specs that registration hooks yield, one frozen dataclass per kind of plugin.

A spec names its implementation as ``"module:attribute"``. The implementation is imported only when a config selects it,
so that a plugin's entry-point module never imports the framework it serves.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

API = 1
"""Version of the contract between det-core and its plugins."""


@dataclass(frozen=True, kw_only=True)
class Spec:
    """Fields that all kinds of specs have.

    Args:
        name: name that selects it in a config, unique within its kind.
        target: ``"module:attribute"`` of the implementation.
        config_model: ``"module:Model"``, a pydantic model of the config block, or None if there are no options.
        install: command to suggest if the target fails to import, such as ``pip install det-storage-gcs``. Messages
            replace ``pip install`` by the command that fits the environment.
        api: version of the contract that the plugin was written for.
    """

    name: str
    target: str
    config_model: str | None = None
    install: str = ""
    api: int = API


@dataclass(frozen=True, kw_only=True)
class FrameworkSpec(Spec):
    """A trial framework. ``target(trial_class, core_context)`` trains one trial to its end (`interfaces.framework`).

    Args:
        loading: Python lines that load a checkpoint, in which ``"{path}"``, within double quotes, stands for its
            directory. They are shown for checkpoints whose metadata names this framework under ``trial_framework``.
        load: ``"module:attribute"`` of the function that ``Checkpoint.load`` calls for such checkpoints as ``load(path,
            tags=tags, **kwargs)``, with their directory and the arguments of its caller.
        exports: formats of ``det checkpoint export`` mapped to ``"module:attribute"`` of a function ``export(path,
            target)``, which writes the weights of the checkpoint in the directory ``path`` into the empty directory
            ``target``.
        old_names: names by which this framework recognizes checkpoints of the original: a ``trial_type`` (in
            ``load_data.json``), a ``format``, or a ``framework`` without its version (in ``metadata.json``).
        starter: ``"package:directory"`` with the files of a small trial, or an empty string. ``det init`` copies its
            files, among them ``const.yaml``, and adds ``iris.csv``, a table of 150 flowers with four measurements each.
        needs_adapter: whether only backends that have an adapter for it (`BackendSpec.adapters`) can train a trial with
            several slots. False if the framework itself divides each batch among the workers, with any backend.
        prepare: modules that its workers import, such as that of ``target``, and that may be imported before a fork,
            because they start no threads, open no files and use no GPU when they are imported. On this machine, a
            process imports them once and is copied for each worker.
        adapters: names of backends mapped to ``"module:adapter"``, for backends that do not know this framework. An
            adapter that the backend itself has (`BackendSpec.adapters`) takes precedence.
        elastic: whether a trial can continue from its checkpoints on another number of slots, with the same records in
            each step. Only such trials may have ``resources.min_slots_per_trial``.
    """

    loading: str = ""
    load: str | None = None
    exports: Mapping[str, str] = field(default_factory=dict)
    old_names: Sequence[str] = ()
    starter: str = ""
    needs_adapter: bool = True
    prepare: Sequence[str] = ()
    adapters: Mapping[str, str] = field(default_factory=dict)
    elastic: bool = False

    def loading_lines(self, path: str) -> str:
        """Return `loading` for the checkpoint in the directory ``path``."""
        return self.loading.format(path=json.dumps(path, ensure_ascii=False)[1:-1])  # it has double quotes around it


@dataclass(frozen=True, kw_only=True)
class BackendSpec(Spec):
    """A distributed backend (`interfaces.backend`).

    Args:
        adapters: framework names mapped to ``"module:adapter"``.
        elastic: whether workers continue from checkpoints of another number of workers.
        prepare: modules that its launcher and its workers import with any framework, and that may be imported before a
            fork, as for `FrameworkSpec`.
    """

    adapters: Mapping[str, str] = field(default_factory=dict)
    elastic: bool = False
    prepare: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class StorageSpec(Spec):
    """Checkpoint storage. ``target(config)`` makes an `interfaces.storage.StorageManager`."""


@dataclass(frozen=True, kw_only=True)
class LauncherSpec(Spec):
    """A launcher. ``target(config)`` makes an `interfaces.launcher.Launcher`.

    Args:
        claims: ``"module:Model"`` of a pydantic model of keys that have no effect with other launchers, such as
            ``environment.image`` and ``resources.shm_size``, or None if the launcher uses none. Its fields are blocks
            and keys as in the config, with defaults. The config is refused if the model does not accept its keys. The
            implementation is then called as ``target(config, claimed)``, with the validated model.
    """

    claims: str | None = None


@dataclass(frozen=True, kw_only=True)
class SearchMethodSpec(Spec):
    """A search method. ``target(config, hyperparameters, seed)`` makes an `interfaces.search_method.SearchMethod`.

    Its config model may define ``check_hyperparameters(hyperparameters)``, which raises a ``PydanticCustomError`` for
    hyperparameters that it cannot search.
    """


@dataclass(frozen=True, kw_only=True)
class ObserverSpec(Spec):
    """An observer of events. ``target(config)`` makes an `interfaces.observer.Observer`."""


@dataclass(frozen=True, kw_only=True)
class CommandSpec(Spec):
    """A command of the CLI. ``target(parser)`` adds arguments to ``det NAME`` and sets ``run=function(args) -> int``.

    Args:
        help: one line for ``det --help``.
    """

    help: str = ""
