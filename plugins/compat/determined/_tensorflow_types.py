"""Types that annotations in old Keras and Estimator trials name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

__all__ = ["ArrayLike", "ServingInputReceiverFn", "TFKerasTrainConfig"]

ArrayLike: TypeAlias = Any
"""A NumPy array, or a list or dict of them."""

ServingInputReceiverFn: TypeAlias = Callable[..., Any]
"""Function that returns a ``ServingInputReceiver`` or ``TensorServingInputReceiver``."""


class TFKerasTrainConfig(NamedTuple):
    """Arguments of a call of ``Model.fit``."""

    training_data: Any
    validation_data: Any
    callbacks: list[Any]
