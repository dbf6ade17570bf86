"""Options of the ``optuna`` search method."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import Self

from det_core.config import Block
from det_core.plugins import plugin_registry

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

RUNGS = "adaptive_asha"
"""Search method of det that decides how long each trial trains."""

_RungsConfig: Any = plugin_registry().config_model(plugin_registry().find("search_method", RUNGS))


class SamplerConfig(Block):
    """Sampler of Optuna."""

    model_config = ConfigDict(extra="allow")

    name: str = Field(default="TPESampler", examples=["GPSampler"])
    """Class in ``optuna.samplers``. The other keys are its keyword arguments, with Optuna's own defaults."""

    @model_validator(mode="after")
    def _can_be_made(self) -> Self:
        try:
            self.new_sampler(0)
        except Exception as error:  # the sampler checks its arguments in its own ways
            problem = {"name": self.name, "error": f"{type(error).__name__}: {error}"}
            raise PydanticCustomError("sampler", "optuna.samplers.{name} cannot be made: {error}", problem) from None
        return self

    def new_sampler(self, seed: int) -> BaseSampler:
        """Return a new sampler.

        Args:
            seed: seed of its random generators, unless the config has a ``seed``.
        """
        from optuna import samplers

        sampler: BaseSampler = getattr(samplers, self.name)(**{"seed": seed, **(self.model_extra or {})})
        return sampler


class OptunaConfig(_RungsConfig):  # type: ignore[misc]
    """Options of a search whose trials a sampler of Optuna proposes, and the rungs of adaptive_asha stop."""

    sampler: SamplerConfig = Field(
        default_factory=SamplerConfig, examples=[{"name": "TPESampler", "n_startup_trials": 20}]
    )
    """Sampler that proposes the hyperparameters of new trials."""
    stop_once: Literal[True] = True
    """A trial always ends at the first rung where it is not among the best, because samplers learn from ended trials."""
