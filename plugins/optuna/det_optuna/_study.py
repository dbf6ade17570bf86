"""Studies of Optuna whose trials have the hyperparameters of a config."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import optuna

from det_core.config import HyperparameterPath, choose_hyperparameters


def new_study(sampler: optuna.samplers.BaseSampler) -> optuna.Study:
    """Return a study in memory, without the line that Optuna prints for each."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        return optuna.create_study(sampler=sampler)
    finally:
        optuna.logging.set_verbosity(verbosity)


def propose_hyperparameters(trial: optuna.Trial, hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that the sampler chooses for a trial."""
    return choose_hyperparameters(hyperparameters, partial(_suggest, trial))


def name_in_study(path: HyperparameterPath) -> str:
    """Return the name of a hyperparameter in the study. Items of categoricals are numbers, as in ``optimizer.0.lr``."""
    return ".".join(str(part).replace("\\", r"\\").replace(".", r"\.") for part in path)


def _suggest(trial: optuna.Trial, path: HyperparameterPath, choice: Any) -> Any:
    name = name_in_study(path)
    if choice.type == "const":
        return choice.val
    if choice.type == "categorical":
        return trial.suggest_categorical(name, range(len(choice.vals)))
    if choice.type == "int":
        return trial.suggest_int(name, choice.minval, choice.maxval)
    return trial.suggest_float(name, *choice.limits, log=choice.type == "log")
