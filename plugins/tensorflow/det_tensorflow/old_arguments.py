"""Old arguments and methods of Keras's optimizers, which TensorFlow 2.15 ignores or rejects."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

import tensorflow as tf

from det_core.errors import InvalidTrial

_log = logging.getLogger("det.tensorflow")

_ARGUMENTS = {"lr", "decay", "gradient_aggregator", "gradient_transformers"}
_optimizers = tf.keras.optimizers
_IGNORED_METHODS = {"_resource_apply_dense", "_resource_apply_sparse"}
_process_kwargs = _optimizers.Optimizer._process_kwargs
_constructors: dict[Any, Callable[..., None]] = {
    kind: vars(kind)["__init__"]
    for name, kind in vars(_optimizers).items()
    if isinstance(kind, type) and name != "Optimizer" and hasattr(_optimizers.legacy, name)
}
"""Optimizer that also exists in ``legacy`` -> its ``__init__``."""


def refuse_ignored_rate() -> None:
    """Make Keras's optimizers raise if they get ``lr``, which TensorFlow 2.15 ignores with a log message.

    They also raise if a subclass has the methods of its update that TensorFlow 2.15 ignores without a message.
    """

    @wraps(_process_kwargs)
    def process(self: Any, kwargs: dict[str, Any]) -> None:
        rate, name = kwargs.get("lr"), type(self).__name__
        if rate is not None:
            raise InvalidTrial(
                f"{name}(lr={rate!r}) has no effect since TensorFlow 2.11; write {name}(learning_rate={rate!r})"
            )
        if ignored := _IGNORED_METHODS & {*dir(type(self))}:
            raise InvalidTrial(
                f"{name} defines {', '.join(sorted(ignored))}, which TensorFlow calls no longer since 2.11; derive "
                f"{name} from a class of tf.keras.optimizers.legacy"
            )
        _process_kwargs(self, kwargs)

    _optimizers.Optimizer._process_kwargs = process


def accept_old_arguments() -> None:
    """Make Keras's optimizers with an argument from before TensorFlow 2.11 the ``legacy`` ones, as they were then.

    Those that a trial derives from them cannot change their base. For these, ``lr`` is the ``learning_rate``.
    """
    _optimizers.Optimizer.__new__ = _new
    for kind, constructor in _constructors.items():
        kind.__init__ = _rename_rate(constructor)


def _new(kind: type, *args: Any, **kwargs: Any) -> Any:
    old = _ARGUMENTS & kwargs.keys()
    legacy = getattr(_optimizers.legacy, kind.__name__, None) if old else None
    if legacy is None or getattr(_optimizers, kind.__name__, None) is not kind:
        return object.__new__(kind)
    _log.info("%s with %s is tf.keras.optimizers.legacy.%s", kind.__name__, ", ".join(sorted(old)), kind.__name__)
    rate = {"learning_rate": kwargs.pop("lr")} if "lr" in kwargs else {}  # the legacy ones warn about lr
    return legacy(*args, **kwargs, **rate)


def _rename_rate(constructor: Callable[..., None]) -> Callable[..., None]:
    @wraps(constructor)
    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        if "lr" in kwargs:
            kwargs["learning_rate"] = kwargs.pop("lr")
        constructor(self, *args, **kwargs)

    return construct
