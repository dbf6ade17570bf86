"""Plugin of det-core itself, which registers its parts through the same hooks as other plugins."""

from __future__ import annotations

from collections.abc import Iterator

from det_core.plugins import hookimpl
from det_core.specs import CommandSpec, LauncherSpec, SearchMethodSpec, StorageSpec


@hookimpl
def det_storage() -> Iterator[StorageSpec]:
    yield StorageSpec(
        name="directory",
        target="det_core.storage.directory:DirectoryStorage",
        config_model="det_core.storage.config:DirectoryConfig",
    )
    yield StorageSpec(
        name="shared_fs",
        target="det_core.storage.directory:DirectoryStorage",
        config_model="det_core.storage.config:SharedFSConfig",
    )


@hookimpl
def det_launchers() -> Iterator[LauncherSpec]:
    yield LauncherSpec(
        name="local",
        target="det_core.launch.local:LocalLauncher",
        config_model="det_core.launch.local:LocalConfig",
    )


_SEARCH_METHODS = {
    "single": "independent:Single",
    "random": "independent:Random",
    "grid": "independent:Grid",
    "async_halving": "asha:AsyncHalving",
    "adaptive_asha": "asha:AdaptiveAsha",
    "pbt": "pbt:Pbt",
    "custom": "custom:Custom",
}
"""Names mapped to the module and the common prefix of its classes."""


@hookimpl
def det_search_methods() -> Iterator[SearchMethodSpec]:
    for name, place in _SEARCH_METHODS.items():
        target = f"det_core.search.{place}"
        yield SearchMethodSpec(name=name, target=f"{target}Search", config_model=f"{target}Config")


_COMMANDS = {
    "init": "write a config and a trial that train as they are",
    "run": "train an experiment on this host and show its progress",
    "experiment": "create, watch, compare and resume experiments",
    "trial": "inspect trials and download their checkpoints",
    "checkpoint": "list, describe and download checkpoints",
    "model": "register good checkpoints as versions of models",
    "login": "log in at a det server",
    "logout": "log out at a det server",
    "store": "check, back up, restore and upgrade the tracking store",
    "webhook": "announce changes of experiments to other services",
    "slots": "show which trials use the slots of this host, and which wait for them",
    "config": "check experiment configs",
    "tensorboard": "show experiments in TensorBoard",
    "preview-search": "show which trials a search will train, and for how long",
    "plugins": "list and check plugins",
    "doctor": "check that experiments can run on this host",
    "completion": "set up shell completion for det",
}


@hookimpl
def det_commands() -> Iterator[CommandSpec]:
    for name, text in _COMMANDS.items():
        yield CommandSpec(name=name, target=f"det_core.cli.commands.{name.replace('-', '_')}:configure", help=text)
