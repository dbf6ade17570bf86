"""Choice of a trial's distributed backend, and access to the backend from workers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from det_core.core import DistributedContext, failure_notes
from det_core.core._cluster_info import get_cluster_info
from det_core.errors import CommError, ConfigError, InvalidExperimentException, LaunchError
from det_core.plugins import plugin_registry
from det_core.specs import BackendSpec, FrameworkSpec
from det_core.tracking.secret_files import resolve_secrets

if TYPE_CHECKING:
    from pydantic import BaseModel

    from det_core.config import ExperimentConfig
    from det_core.interfaces.backend import Backend
    from det_core.trial import TrialContext

__all__ = ["BACKEND_VARIABLE", "CHIEF_VARIABLE", "connect_workers", "distributed_block", "load_adapter", "make_adapter"]

BACKEND_VARIABLE = "DET_BACKEND"
"""Environment variable of workers with the name of the backend that started them."""
OPTIONS_VARIABLE = "DET_BACKEND_OPTIONS"
"""Environment variable with the options of the backend as JSON, for workers started outside of the runner."""
CHIEF_VARIABLE = "DET_CHIEF_IP"
"""Environment variable of workers with the address of the chief's host."""
PORT_VARIABLE = "INTER_TRAIN_PROCESS_COMM_PORT_1"
"""Environment variable of workers with the port at which they meet.

`DistributedContext.from_torch_distributed` reads it, too.
"""


def choose_backend(config: ExperimentConfig, framework: str | None, environ: Mapping[str, str]) -> BackendSpec | None:
    """Choose the backend that starts the workers of a trial.

    Args:
        config: the config of the experiment.
        framework: the framework that the backend must adapt, or None if it is not known before the trial is imported.
        environ: the environment variables, which the hook ``det_choose_backend`` receives.

    Returns:
        The backend that ``distributed.backend`` names, else the only suitable one that is installed. None if the
        entrypoint is a command, which starts its own workers, or the trial has one slot and names no backend.

    Raises:
        InvalidExperimentException: no suitable backend is installed, or several are and the choice is not clear.
        PluginError: there is no plugin with the configured name.
    """
    from det_core.config import is_command  # workers do not choose

    named, slots = config.distributed and config.distributed.backend, config.resources.slots_per_trial
    if named:
        return _find(named)
    if slots <= 1 or is_command(config.entrypoint):
        return None
    suitable = {spec.name: spec for spec in _installed() if framework is None or _adapts(spec, framework)}
    if not suitable:
        raise InvalidExperimentException(_none_installed(slots, framework))
    if len(suitable) == 1:
        return next(iter(suitable.values()))
    answer = plugin_registry().choose("det_choose_backend", framework=framework or "", environ=environ)
    if answer not in suitable:
        raise InvalidExperimentException(
            f"resources.slots_per_trial is {slots}, and several distributed backends are installed: "
            f"{', '.join(suitable)}; choose one of them: distributed: {{backend: {next(iter(suitable))}}}"
        )
    return suitable[answer]


def open_backend(name: str, options: BaseModel) -> Backend:
    """Open a backend.

    Args:
        name: name of the backend.
        options: its options, as returned by `parse_options`.

    Raises:
        PluginError: there is no usable plugin with this name.
    """
    return cast("Backend", plugin_registry().call_target(_find(name), options))


def parse_options(name: str, block: Mapping[str, Any]) -> BaseModel:
    """Return the options of a backend, validated by the model of the backend.

    Args:
        name: name of the backend.
        block: the ``distributed`` block of a config, in which ``backend`` may be missing.

    Raises:
        ConfigError: options are invalid. The error lists all of them.
    """
    from pydantic import ValidationError  # workers of trials with one slot have no options

    from det_core.config import DistributedConfig, explain_block

    try:
        return DistributedConfig.model_validate({**block, "backend": name}).options
    except ValidationError as error:
        raise ConfigError(explain_block(error, "distributed", {**block, "backend": name})) from error


def current_backend() -> tuple[str, Backend] | None:
    """Return the name and the backend that started this process, or None if none did.

    Raises:
        PluginError: there is no usable plugin with this name.
        ConfigError: options of the backend are invalid.
    """
    name = os.environ.get(BACKEND_VARIABLE)
    return (name, open_backend(name, parse_options(name, distributed_block()))) if name else None


def make_adapter(framework: str, context: TrialContext, alone: Callable[[], Any]) -> Any:
    """Make the framework's adapter of the backend that started this process, for one trial.

    Args:
        framework: name of the framework.
        context: the context of the trial.
        alone: function that makes the substitute for the adapter if the trial has one slot and no backend.

    Raises:
        LaunchError: there are several slots, but no backend has started this process.
        InvalidExperimentException: the backend does not adapt this framework.
        PluginError: the adapter does not load.
        ConfigError: options of the backend are invalid.
    """
    if context.distributed.size == 1 and BACKEND_VARIABLE not in os.environ:
        return alone()
    return load_adapter(framework)(context, parse_options(os.environ[BACKEND_VARIABLE], distributed_block()))


def load_adapter(framework: str) -> Any:
    """Load the framework's adapter of the backend that started this process.

    Args:
        framework: name of the framework.

    Raises:
        LaunchError: no backend started this process.
        InvalidExperimentException: the backend only adapts other frameworks, which the error lists.
        PluginError: the adapter does not load.
    """
    spec = _find(_started_by())
    _require_adapter(framework, [spec])
    return plugin_registry().adapter(*plugin_registry().adapters(spec)[framework])


def check_slots(framework: FrameworkSpec, slots: int, backend: str | None) -> None:
    """Raise an error if each slot would train a copy of the trial, because no backend adapts the framework.

    Args:
        framework: the framework of the trial.
        slots: number of slots of the trial.
        backend: name of the backend that starts the workers, or None if any installed one may do so.

    Raises:
        InvalidExperimentException: there are several slots, and no such backend has an adapter that the framework
            needs.
    """
    if slots > 1 and framework.needs_adapter:
        _require_adapter(framework.name, [_find(backend)] if backend else _installed())


def check_elastic(framework: FrameworkSpec, backend: str | None) -> None:
    """Raise an error unless a trial can continue on another number of slots.

    Args:
        framework: the framework of the trial.
        backend: name of the backend that starts the workers, or None if it is not known.

    Raises:
        InvalidExperimentException: the framework or the backend cannot.
    """
    used: Mapping[str, FrameworkSpec | BackendSpec] = {
        "framework": framework,
        **({"backend": _find(backend)} if backend else {}),
    }
    for kind, spec in used.items():
        if not spec.elastic:
            specs = cast("list[FrameworkSpec | BackendSpec]", plugin_registry().specs(kind))
            able = ", ".join(other.name for other in specs if other.elastic)
            raise InvalidExperimentException(
                f"the trial's {kind} {spec.name!r} cannot continue on another number of slots"
                f"{f', unlike {able}' if able else ''}; remove resources.min_slots_per_trial"
            )


def connect_workers() -> DistributedContext:
    """Meet the other workers that the current backend has started.

    Raises:
        LaunchError: no backend started this process.
        PluginError: there is no usable plugin for the backend.
        ConfigError: options of the backend are invalid.
        CommError: as `DistributedContext`.
    """
    name = _started_by()
    ranks = open_backend(name, parse_options(name, distributed_block())).ranks()
    try:
        return DistributedContext(
            **asdict(ranks),
            chief_ip=os.environ[CHIEF_VARIABLE],
            pub_port=int(os.environ[PORT_VARIABLE]),
            timeout=distributed_block().get("timeout"),
        )
    except CommError as error:
        failure_notes.write_failure_note(ranks.rank, 1, str(error))
        raise


def distributed_block() -> Mapping[str, Any]:
    """Return the ``distributed`` block that this process was started with. It may be empty."""
    if OPTIONS_VARIABLE in os.environ:
        return cast("Mapping[str, Any]", json.loads(os.environ[OPTIONS_VARIABLE]))
    info = get_cluster_info()
    block = info.trial.config.get("distributed") if info and info.trial else None
    return cast("Mapping[str, Any]", resolve_secrets({"distributed": block or {}})["distributed"])


def _require_adapter(framework: str, backends: Sequence[BackendSpec]) -> None:
    if backends and not any(_adapts(spec, framework) for spec in backends):
        suitable = [f"distributed: {{backend: {spec.name}}}" for spec in _installed() if _adapts(spec, framework)]
        remedies = [*suitable, "resources: {slots_per_trial: 1} without distributed.backend"]
        raise InvalidExperimentException(
            f"the trial's framework {framework!r} can train on several slots only with a distributed backend that "
            f"adapts it, unlike {', '.join(spec.name for spec in backends)}; set {' or '.join(remedies)}"
        )


def _adapts(backend: BackendSpec, framework: str) -> bool:
    return framework in plugin_registry().adapters(backend)


def _installed() -> list[BackendSpec]:
    return [cast("BackendSpec", spec) for spec in plugin_registry().specs("backend")]


def _find(name: str) -> BackendSpec:
    return cast("BackendSpec", plugin_registry().find("backend", name))


def _started_by() -> str:
    name = os.environ.get(BACKEND_VARIABLE)
    if name is None:
        raise LaunchError(
            "this process was not started by a distributed backend; start it with: "
            "python -m det_core.launch BACKEND --slots 2 -- script.py"
        )
    return name


def _none_installed(slots: int, framework: str | None) -> str:
    from det_core.package_commands import package_command  # not for workers
    from det_core.plugins._known_distributions import DISTRIBUTIONS

    suitable = f" that adapts {framework!r}" if framework else ""
    commands = " or ".join(
        package_command("install", distribution) for distribution in DISTRIBUTIONS["backend"].values()
    )
    return (
        f"resources.slots_per_trial is {slots}, but no distributed backend{suitable} is installed; "
        f"install one: {commands}; or use 1 slot, or an entrypoint that is a command and starts its own workers"
    )
