"""Options of the ``optuna`` search method."""

from __future__ import annotations

import inspect
import random
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import Self

from det_core.config import Block, match_hyperparameters, sample_hyperparameters
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
_TYPES: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "dict[str, Any]": (dict,),
    "float": (int, float),
    "int": (int,),
    "str": (str,),
}
"""Types of a config's values, by the annotations of samplers' arguments. Other types are of Python objects."""
_MOST = 10_000
"""Greatest number of trials, candidates and the like, each of which takes memory."""
_MOST_HYPERPARAMETERS = 500
"""Greatest number of hyperparameters of a trial. CmaEsSampler takes a second per proposal for twice as many."""
_STARTUP_TRIALS = 10
"""Number of random trials before a sampler learns, in its check. It is also Optuna's default."""


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
        from optuna import samplers

        parameters = inspect.signature(getattr(samplers, self.name)).parameters
        for key, value in (self.model_extra or {}).items():
            if key in parameters:
                _check_argument(parameters[key], value)
        with self._explaining_errors():
            self.new_sampler(0)
        return self

    def check_hyperparameters(self, hyperparameters: Mapping[str, Any]) -> None:
        """Raise an error of pydantic if the sampler cannot propose a trial, or not learn from others."""
        from det_optuna._study import new_study, propose_hyperparameters

        example = sample_hyperparameters(hyperparameters, random.Random(0))  # noqa: S311
        if (found := len(match_hyperparameters(hyperparameters, example))) > _MOST_HYPERPARAMETERS:
            message = "expected at most {most} hyperparameters, from which a sampler can learn, got {found}; use random"
            raise PydanticCustomError("sampler", message, {"most": _MOST_HYPERPARAMETERS, "found": found})
        given = (self.model_extra or {}).keys() & {"n_startup_trials"}
        with self._explaining_errors():
            study = new_study(self.new_sampler(0, **dict.fromkeys(given, _STARTUP_TRIALS)))
            for number in range(_STARTUP_TRIALS + 1):
                trial = study.ask()
                propose_hyperparameters(trial, hyperparameters)
                study.tell(trial, number)

    @contextmanager
    def _explaining_errors(self) -> Iterator[None]:
        import optuna

        verbosity = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.ERROR)  # the search repeats warnings
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        except Exception as error:  # noqa: BLE001  (each sampler checks its arguments in its own ways)
            message = "{name} does not work with these arguments: {reason}"
            problem = {"name": self.name, "reason": f"{type(error).__name__}: {error}"}
            raise PydanticCustomError("sampler", message, problem) from None
        finally:
            optuna.logging.set_verbosity(verbosity)

    def new_sampler(self, seed: int, **others: Any) -> BaseSampler:
        """Return a new sampler.

        Args:
            seed: seed of its random generators, unless the config has a ``seed``.
            others: arguments that replace those of the config.
        """
        from optuna import samplers

        sampler: BaseSampler = getattr(samplers, self.name)(**{"seed": seed, **(self.model_extra or {}), **others})
        return sampler


def _check_argument(parameter: inspect.Parameter, value: Any) -> None:
    annotations = str(parameter.annotation).split(" | ")
    types = [each for annotation in annotations for each in _TYPES.get(annotation, ())]
    if not types:
        expected = "no value, because only Python code can give one"
    elif type(value) not in types:
        expected = f"a value of the type {parameter.annotation}"
    elif type(value) is int and value > _MOST and parameter.name != "seed":
        expected = f"at most {_MOST}"
    else:
        return
    message = "{name}: expected {expected}, got {value}"
    raise PydanticCustomError("sampler", message, {"name": parameter.name, "expected": expected, "value": repr(value)})


class OptunaConfig(_RungsConfig):  # type: ignore[misc]
    """Options of a search whose trials a sampler of Optuna proposes, and the rungs of adaptive_asha stop."""

    sampler: SamplerConfig = Field(
        default_factory=SamplerConfig, examples=[{"name": "TPESampler", "n_startup_trials": 20}]
    )
    """Sampler that proposes the hyperparameters of new trials."""
    stop_once: Literal[True] = True
    """A trial ends at the first rung where it is not among the best, because samplers learn from ended trials."""

    def check_hyperparameters(self, hyperparameters: Mapping[str, Any]) -> None:
        """Raise an error of pydantic if the sampler does not work with the hyperparameters."""
        self.sampler.check_hyperparameters(hyperparameters)
