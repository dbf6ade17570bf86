"""Registration of the ``mlflow`` observer with det."""

from __future__ import annotations

from collections.abc import Iterator

import det_core
from det_core.specs import ObserverSpec


@det_core.hookimpl
def det_observers() -> Iterator[ObserverSpec]:
    """Yield the specification of the observer."""
    yield ObserverSpec(
        name="mlflow",
        target="det_mlflow._observer:MLflowObserver",
        config_model="det_mlflow._config:MLflowConfig",
        install="pip install det-mlflow",
    )
