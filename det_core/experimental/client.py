"""Methods of `Determined` as functions of one shared client, such as ``client.get_experiment(1)``.

They use the tracking store that `Determined` opens by default, unless `login` names another.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from inspect import signature
from typing import Any

from det_core.experimental._checkpoint import Checkpoint
from det_core.experimental._determined import Determined
from det_core.experimental._experiment import ExperimentReference
from det_core.experimental._model import Model, ModelOrderBy, ModelSortBy, ModelVersion
from det_core.experimental._trial import TrialMetrics, TrialReference
from det_core.interfaces.records import State as ExperimentState
from det_core.interfaces.records import State as TrialState

Experiment = ExperimentReference
Trial = TrialReference

_METHODS = sorted(name for name in vars(Determined) if not name.startswith("_"))

__all__ = [
    "Checkpoint",
    "Determined",
    "Experiment",
    "ExperimentReference",
    "ExperimentState",
    "Model",
    "ModelOrderBy",
    "ModelSortBy",
    "ModelVersion",
    "Trial",
    "TrialMetrics",
    "TrialReference",
    "TrialState",
    "login",
    *_METHODS,
]

_arguments: tuple[str | None, str | None] = (None, None)


def login(
    master: str | None = None,
    user: str | None = None,
    password: str | None = None,
    cert_path: str | None = None,
    cert_name: str | None = None,
    noverify: bool = False,
) -> None:
    """Choose the tracking store that this module's functions use from now on.

    Args:
        master: as in `Determined`.
        user: as in `Determined`.
        password: ignored. The password of a database is part of its URL.
        cert_path: ignored.
        cert_name: ignored.
        noverify: ignored.

    Raises:
        TrackingError: the tracking store cannot be opened.
    """
    global _arguments
    Determined(master, user)  # raises if the store cannot be opened
    _arguments = (master, user)


def __getattr__(name: str) -> Callable[..., Any]:
    if name not in _METHODS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _function(name)


def __dir__() -> list[str]:
    return __all__


@cache
def _function(name: str) -> Callable[..., Any]:
    method = getattr(Determined, name)

    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(Determined(*_arguments), name)(*args, **kwargs)

    parameters = list(signature(method).parameters.values())[1:]
    call.__signature__ = signature(method).replace(parameters=parameters)  # type: ignore[attr-defined]
    return call
