"""Search method whose trials a sampler of Optuna proposes, and the rungs of det stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import optuna
from optuna.trial import TrialState

from det_core.config import match_hyperparameters
from det_core.interfaces.search_method import WORST, Action, Close, Create, SearchMethod
from det_core.plugins import plugin_registry
from det_optuna._config import RUNGS, OptunaConfig
from det_optuna._study import name_in_study, new_study, propose_hyperparameters


class OptunaSearch(SearchMethod):
    """Search in which adaptive_asha creates, promotes and stops trials, and Optuna proposes their hyperparameters.

    Optuna's study is in memory. A resumed search repeats all events, so the sampler proposes what it has proposed
    before. If another release of Optuna proposes something else, the study gets what was recorded instead.
    """

    def __init__(self, config: OptunaConfig, hyperparameters: Mapping[str, Any], seed: int) -> None:
        plugins = plugin_registry()
        rungs = plugins.call_target(plugins.find("search_method", RUNGS), config, hyperparameters, seed)
        self._rungs = cast("SearchMethod", rungs)
        self._space, self._max_length = hyperparameters, config.max_length.value
        self._study = new_study(config.sampler.new_sampler(seed))
        self._trials: dict[int, optuna.Trial] = {}
        self._recorded: Mapping[int, Mapping[str, Any]] = {}
        """Hyperparameters of the trials that the recorded answer to the replayed event creates."""

    def start(self) -> Sequence[Action]:
        return self._propose(self._rungs.start())

    def on_validation(self, request_id: int, length: int | None, metric: float) -> Sequence[Action]:
        actions = self._rungs.on_validation(request_id, length, metric)
        trial = self._trials[request_id]
        trial.report(metric, length or 0)
        if Close(request_id) in actions:
            self._end(trial, metric, complete=length == self._max_length)
        return self._propose(actions)

    def on_exit(self, request_id: int, reason: str) -> Sequence[Action]:
        self._study.tell(self._trials[request_id], state=TrialState.FAIL)
        return self._propose(self._rungs.on_exit(request_id, reason))

    def replay(self, event: str, arguments: Sequence[Any], actions: Sequence[Action]) -> Sequence[Action]:
        self._recorded = {action.request_id: action.hparams for action in actions if isinstance(action, Create)}
        return super().replay(event, arguments, actions)

    def progress(self, lengths: Mapping[int, float]) -> float:
        return self._rungs.progress(lengths)

    def outline(self) -> Sequence[str]:
        return [f"proposals of {type(self._study.sampler).__name__}", *self._rungs.outline()]

    def _end(self, trial: optuna.Trial, metric: float, *, complete: bool) -> None:
        if metric == WORST:
            self._study.tell(trial, state=TrialState.FAIL)
        elif complete:
            self._study.tell(trial, metric)
        else:
            self._study.tell(trial, state=TrialState.PRUNED)

    def _propose(self, actions: Sequence[Action]) -> Sequence[Action]:
        """Replace the hyperparameters of new trials by those that the sampler proposes."""
        return [
            replace(action, hparams=self._new_hparams(action.request_id)) if isinstance(action, Create) else action
            for action in actions
        ]

    def _new_hparams(self, request_id: int) -> Mapping[str, Any]:
        hparams = self._ask(request_id)
        recorded = self._recorded.get(request_id, hparams)
        if recorded != hparams:  # another release of Optuna has proposed them
            self._study.tell(self._trials[request_id], state=TrialState.FAIL)
            chosen = match_hyperparameters(self._space, recorded)
            self._study.enqueue_trial({name_in_study(path): value for path, value in chosen.items()})
            self._ask(request_id)
        return recorded

    def _ask(self, request_id: int) -> Mapping[str, Any]:
        self._trials[request_id] = self._study.ask()
        return propose_hyperparameters(self._trials[request_id], self._space)
