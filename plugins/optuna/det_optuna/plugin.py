"""Registration of the ``optuna`` search method with det."""

from __future__ import annotations

from collections.abc import Iterator

import det_core
from det_core.specs import SearchMethodSpec


@det_core.hookimpl
def det_search_methods() -> Iterator[SearchMethodSpec]:
    """Yield the specification of the search method."""
    yield SearchMethodSpec(
        name="optuna",
        target="det_optuna._search:OptunaSearch",
        config_model="det_optuna._config:OptunaConfig",
        install="pip install det-optuna",
    )
