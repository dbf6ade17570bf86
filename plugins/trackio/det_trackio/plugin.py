"""Registration of the ``trackio`` observer with det. Importing this module does not import Trackio."""

from __future__ import annotations

from collections.abc import Iterator

import det_core
from det_core.specs import ObserverSpec


@det_core.hookimpl
def det_observers() -> Iterator[ObserverSpec]:
    """Yield the specification of the observer."""
    yield ObserverSpec(
        name="trackio",
        target="det_trackio._observer:TrackioObserver",
        config_model="det_trackio._config:TrackioConfig",
        install="pip install det-trackio",
    )
