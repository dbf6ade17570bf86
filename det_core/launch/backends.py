"""Which distributed backend a trial uses, and its halves where they are needed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel, ValidationError

from det_core.config import DistributedConfig, ExperimentConfig, explain_block, is_command
from det_core.core import DistributedContext
from det_core.core._info import get_cluster_info
from det_core.errors import CommError, ConfigError, InvalidExperimentException, LaunchError, PluginError
from det_core.interfaces.backend import Backend
from det_core.launch import _verdict
from det_core.plugins import registry, resolve
from det_core.plugins._known import DISTRIBUTIONS
from det_core.specs import BackendSpec
from det_core.tracking.secret_files import fill

if TYPE_CHECKING:
    from det_core.trial import TrialContext

NAME = "DET_BACKEND"
"""Environment variable of workers: the name of the backend that started them."""
OPTIONS = "DET_BACKEND_OPTIONS"
"""Environment variable of workers that were not started for a trial class: its options, as JSON."""
CHIEF = "DET_CHIEF_IP"
"""Environment variable of workers: the address of the chief's host."""
PORT = "INTER_TRAIN_PROCESS_COMM_PORT_1"
"""Environment variable of workers: where they meet; `DistributedContext.from_torch_distributed` reads it, too."""


def choose(config: ExperimentConfig, framework: str | None, environ: Mapping[str, str]) -> BackendSpec | None:
    """The backend that starts the workers of a trial.

    Args:
        framework: must be adapted by it; None = not known before the trial is imported.
        environ: where the choice is made, for the hook ``det_choose_backend``.

    Returns:
        What ``distributed.backend`` names, else the only one that is installed. None if the entrypoint is a command,
        which starts its own workers, or the trial has one slot and names no backend.

    Raises:
        InvalidExperimentException: none is installed, or several are and nothing says which one is meant.
        PluginError: there is no plugin of the name.
    """
    named, slots = config.distributed and config.distributed.backend, config.resources.slots_per_trial
    if named:
        return _find(named)
    if slots <= 1 or is_command(config.entrypoint):
        return None
    specs = [cast("BackendSpec", spec) for spec in registry().specs("backend")]
    suitable = {spec.name: spec for spec in specs if framework is None or framework in spec.adapters}
    if not suitable:
        raise InvalidExperimentException(_none_installed(slots, framework))
    if len(suitable) == 1:
        return next(iter(suitable.values()))
    answer = registry().choose("det_choose_backend", framework=framework or "", environ=environ)
    if answer not in suitable:
        raise InvalidExperimentException(
            f"resources.slots_per_trial is {slots}, and several distributed backends are installed: "
            f"{', '.join(suitable)}; say which one: distributed: {{backend: {next(iter(suitable))}}}"
        )
    return suitable[answer]


def open_backend(name: str, options: BaseModel) -> Backend:
    """Make the backend with its validated options.

    Raises:
        PluginError: no usable plugin has this name.
    """
    return cast("Backend", registry().call_target(_find(name), options))


def parse_options(name: str, block: Mapping[str, Any]) -> BaseModel:
    """The options of a backend, checked by its own model.

    Args:
        block: a ``distributed`` block of a config; its ``backend`` may be missing.

    Raises:
        ConfigError: lists what is wrong.
    """
    try:
        return DistributedConfig.model_validate({**block, "backend": name}).options
    except ValidationError as error:
        raise ConfigError(explain_block(error, "distributed", {**block, "backend": name})) from error


def current() -> tuple[str, Backend] | None:
    """The backend that started this process, and its name; None if none did.

    Raises:
        PluginError, ConfigError: as where it was started.
    """
    name = os.environ.get(NAME)
    return (name, open_backend(name, parse_options(name, block()))) if name else None


def adapt(framework: str, context: TrialContext, alone: Callable[[], Any]) -> Any:
    """The adapter of the backend that started this process to a framework, made for one trial.

    Args:
        alone: makes what stands for it where no backend did, for one slot.

    Raises:
        LaunchError: there are several slots, and no backend started them.
        InvalidExperimentException: the backend does not adapt this framework.
        PluginError, ConfigError: it does not load, or its options are wrong.
    """
    if context.distributed.size == 1 and NAME not in os.environ:
        return alone()
    return adapter(framework)(context, parse_options(os.environ[NAME], block()))


def adapter(framework: str) -> Any:
    """The current backend's adapter to a framework: the loaded target of its `BackendSpec.adapters`.

    Raises:
        LaunchError: no backend started this process.
        InvalidExperimentException: it adapts other frameworks; names them.
        PluginError: the adapter does not load.
    """
    spec = _find(_started_by())
    target = spec.adapters.get(framework)
    if target is None:
        adapted = ", ".join(sorted(spec.adapters)) or "no framework"
        raise InvalidExperimentException(
            f"the distributed backend {spec.name!r} adapts {adapted}, and the trial's framework is {framework!r}; "
            "choose another with distributed: {backend: ...}, or set resources.slots_per_trial: 1"
        )
    try:
        found = resolve(target)
        if not callable(found):
            raise TypeError(f"it is {found!r:.100}; expected a class")
    except Exception as error:
        hint = f" To install what it needs: {spec.install}." if spec.install else ""
        raise PluginError(
            f"the adapter of backend {spec.name!r} to {framework!r} does not load: {target}: "
            f"{type(error).__name__}: {error}.{hint}"
        ) from error
    return found


def meet() -> DistributedContext:
    """Meet the other workers that the current backend started.

    Raises:
        LaunchError: no backend started this process.
        CommError: as `DistributedContext`.
    """
    name = _started_by()
    ranks = open_backend(name, parse_options(name, block())).ranks()
    try:
        return DistributedContext(
            **asdict(ranks),
            chief_ip=os.environ[CHIEF],
            pub_port=int(os.environ[PORT]),
            timeout=block().get("timeout"),
        )
    except CommError as error:
        _verdict.leave(ranks.rank, 1, str(error))
        raise


def block() -> Mapping[str, Any]:
    """The ``distributed`` block that this process was started with."""
    if OPTIONS in os.environ:
        return cast("Mapping[str, Any]", json.loads(os.environ[OPTIONS]))
    info = get_cluster_info()
    return fill(info.trial.config.get("distributed") or {}) if info and info.trial else {}


def _find(name: str) -> BackendSpec:
    return cast("BackendSpec", registry().find("backend", name))


def _started_by() -> str:
    name = os.environ.get(NAME)
    if name is None:
        raise LaunchError(
            "this process was not started by a distributed backend; start it with: "
            "python -m det_core.launch BACKEND --slots 2 -- script.py"
        )
    return name


def _none_installed(slots: int, framework: str | None) -> str:
    suitable = f" that adapts {framework!r}" if framework else ""
    commands = " or ".join(f"pip install {distribution}" for distribution in DISTRIBUTIONS["backend"].values())
    return (
        f"resources.slots_per_trial is {slots}, and no distributed backend{suitable} is installed; "
        f"install one: {commands}; or use 1 slot, or an entrypoint that is a command and starts its own workers"
    )
