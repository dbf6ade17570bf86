"""Options of the ``optuna`` search method."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import Self

from det_core.config import Block
from det_core.plugins import plugin_registry

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

RUNGS = "adaptive_asha"
"""Search method of det that decides how long each trial trains."""

_RungsConfig: Any = plugin_registry().config_model(plugin_registry().find("search_method", RUNGS))

_NOT_USABLE = ("BaseSampler", "BaseGASampler", "PartialFixedSampler", "BruteForceSampler", "GridSampler")
"""Classes that no config can make, and samplers that stop the study themselves after their last point."""
_NEEDED = {"CmaEsSampler": ("cmaes",), "GPSampler": ("scipy", "torch"), "QMCSampler": ("scipy",)}
"""Libraries of which Optuna notices only after some trials that they are missing."""


class SamplerConfig(Block):
    """Sampler of Optuna."""

    model_config = ConfigDict(extra="allow")

    name: str = Field(default="TPESampler", examples=["GPSampler"])
    """Class in ``optuna.samplers``. The other keys are its keyword arguments, with Optuna's own defaults."""

    @field_validator("name")
    @classmethod
    def _is_usable(cls, name: str) -> str:
        from optuna import samplers

        usable = sorted(one for one in samplers.__all__ if one.endswith("Sampler") and one not in _NOT_USABLE)
        if name not in usable:
            message = "expected one of {usable}; to try all points of a grid, use the searcher grid"
            raise PydanticCustomError("sampler", message, {"usable": ", ".join(usable)})
        if missing := " ".join(one for one in _NEEDED.get(name, ()) if find_spec(one) is None):
            message = "{name} needs other libraries; install them with `pip install {missing}`"
            raise PydanticCustomError("sampler", message, {"name": name, "missing": missing})
        return name

    @model_validator(mode="after")
    def _can_be_made(self) -> Self:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the search repeats them
            try:
                self.new_sampler(0)
            except Exception as error:  # noqa: BLE001  (each sampler checks its arguments in its own ways)
                message = "{name} cannot be made: {reason}"
                raise PydanticCustomError("sampler", message, {"name": self.name, "reason": str(error)}) from None
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
    """A trial ends at the first rung where it is not among the best, because samplers learn from ended trials."""
