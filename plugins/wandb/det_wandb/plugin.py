"""Registration of the ``wandb`` observer with det. Importing this module does not import W&B."""

from __future__ import annotations

from collections.abc import Iterator

import det_core
from det_core.specs import ObserverSpec


@det_core.hookimpl
def det_observers() -> Iterator[ObserverSpec]:
    """Yield the specification of the observer."""
    yield ObserverSpec(
        name="wandb",
        target="det_wandb._observer:WandbObserver",
        config_model="det_wandb._config:WandbConfig",
        install="pip install det-wandb",
    )
