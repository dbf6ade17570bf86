"""Old arguments of Keras's optimizers, of which TensorFlow 2.15 ignores ``lr`` and rejects the others."""

from __future__ import annotations

import logging
from functools import wraps
from typing import Any

import tensorflow as tf

from det_core.errors import InvalidTrial

_log = logging.getLogger("det.tensorflow")

_ARGUMENTS = {"lr", "decay", "gradient_aggregator", "gradient_transformers"}
_optimizers = tf.keras.optimizers
_process_kwargs = _optimizers.Optimizer._process_kwargs


def refuse_ignored_rate() -> None:
    """Make Keras's optimizers raise if they get ``lr``, which TensorFlow 2.15 ignores with a log message."""

    @wraps(_process_kwargs)
    def process(self: Any, kwargs: dict[str, Any]) -> None:
        rate = kwargs.get("lr")
        if rate is not None:
            name = type(self).__name__
            raise InvalidTrial(
                f"{name}(lr={rate!r}) has no effect since TensorFlow 2.11; write {name}(learning_rate={rate!r})"
            )
        _process_kwargs(self, kwargs)

    _optimizers.Optimizer._process_kwargs = process


def accept_old_arguments() -> None:
    """Make Keras's optimizers with an argument from before TensorFlow 2.11 the ``legacy`` ones, as they were then.

    This does not include subclasses of trials, whose constructors run as they are.
    """
    _optimizers.Optimizer.__new__ = _new


def _new(kind: type, *args: Any, **kwargs: Any) -> Any:
    old = _ARGUMENTS & kwargs.keys()
    legacy = getattr(_optimizers.legacy, kind.__name__, None) if old else None
    if legacy is None or getattr(_optimizers, kind.__name__, None) is not kind:
        return object.__new__(kind)
    _log.info("%s with %s is tf.keras.optimizers.legacy.%s", kind.__name__, ", ".join(sorted(old)), kind.__name__)
    rate = {"learning_rate": kwargs.pop("lr")} if "lr" in kwargs else {}  # the legacy ones warn about lr
    return legacy(*args, **kwargs, **rate)
