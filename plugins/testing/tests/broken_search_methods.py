"""Search methods with one defect each, and the tests of the suite that catch it.

test_search_method.py registers them as a plugin and runs the tests.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, field_validator

import det_core
from det_core.config import PositiveLength, sample_hyperparameters
from det_core.interfaces.search_method import INVALID_HP, WORST, Action, Close, Create, SearchMethod, Train
from det_core.specs import SearchMethodSpec


class Config(BaseModel):
    max_length: PositiveLength
    max_trials: int = 6


class Sound(SearchMethod):
    """Base class of all search methods here, which trains its trials in two steps and has no defect."""

    config_model: type[BaseModel] = Config
    learns = True

    def __init__(self, config: Config, hyperparameters: Mapping[str, Any], seed: int) -> None:
        self.config, self.space, self.seed = config, hyperparameters, seed
        self.created, self.done = 0, 0
        self.best = WORST

    def start(self) -> Sequence[Action]:
        return [action for _ in range(2) for action in self.create()]

    def create(self) -> Sequence[Action]:
        if self.created == self.config.max_trials:
            return []
        trial, self.created = self.created, self.created + 1
        return [Create(trial, self.sample(trial)), Train(trial, self.length)]

    @property
    def length(self) -> int:
        return self.config.max_length.value

    def sample(self, trial: int) -> Mapping[str, Any]:
        return sample_hyperparameters(self.space, random.Random(f"{self.seed} {trial}"))

    def on_validation(self, request_id: int, length: int | None, metric: float) -> Sequence[Action]:
        if length == self.length and metric <= self.best:
            self.best = metric
            return [Train(request_id, 2 * self.length)]
        self.done += 1
        return [Close(request_id), *self.create()]

    def on_exit(self, request_id: int, reason: str) -> Sequence[Action]:
        self.done += 1
        return self.create()

    def progress(self, lengths: Mapping[int, float]) -> float:
        return self.done / self.config.max_trials

    def state(self) -> Any:
        return {"created": self.created, "done": self.done, "best": self.best}

    def restore(self, state: Any) -> None:
        vars(self).update(state)


class UsesTheGlobalGenerator(Sound):
    def sample(self, trial: int) -> Mapping[str, Any]:
        return sample_hyperparameters(self.space, random)  # type: ignore[arg-type]


class SeedsWithAHash(Sound):
    def sample(self, trial: int) -> Mapping[str, Any]:
        return sample_hyperparameters(self.space, random.Random(hash(f"{self.seed} {trial}")))


class SeedsTheGlobalGenerator(UsesTheGlobalGenerator):
    def __init__(self, config: Config, hyperparameters: Mapping[str, Any], seed: int) -> None:
        super().__init__(config, hyperparameters, seed)
        random.seed(seed)


class ReadsTheClock(Sound):
    def sample(self, trial: int) -> Mapping[str, Any]:
        return sample_hyperparameters(self.space, random.Random(f"{int(time.time() / 3600)} {trial}"))


class ReadsTheTimeOfDay(Sound):
    def sample(self, trial: int) -> Mapping[str, Any]:
        return sample_hyperparameters(self.space, random.Random(f"{datetime.now():%d %H} {trial}"))


class SharesItsTrials(Sound):
    """Search method whose objects have one list of trials."""

    trials: ClassVar[list[int]] = []

    def sample(self, trial: int) -> Mapping[str, Any]:
        self.trials.append(trial)
        return sample_hyperparameters(self.space, random.Random(f"{self.seed} {len(self.trials)}"))


class ForgetsRecordedActions(Sound):
    def replay(self, event: str, arguments: Sequence[Any], actions: Sequence[Action]) -> Sequence[Action]:
        return actions


class AnswersForItself(Sound):
    def replay(self, event: str, arguments: Sequence[Any], actions: Sequence[Action]) -> Sequence[Action]:
        return super().replay(event, arguments, actions)


class IgnoresTheSeed(Sound):
    def sample(self, trial: int) -> Mapping[str, Any]:
        return sample_hyperparameters(self.space, random.Random(trial))


class TriesOnePoint(Sound):
    def sample(self, trial: int) -> Mapping[str, Any]:
        return sample_hyperparameters(self.space, random.Random(self.seed))


class PrefersLargeMetrics(Sound):
    def on_validation(self, request_id: int, length: int | None, metric: float) -> Sequence[Action]:
        return super().on_validation(request_id, length, -metric)


class NeverLearns(Sound):
    def on_validation(self, request_id: int, length: int | None, metric: float) -> Sequence[Action]:
        return super().on_validation(request_id, length, 0.0)


class PrefersTheMiddle(Sound):
    def on_validation(self, request_id: int, length: int | None, metric: float) -> Sequence[Action]:
        return super().on_validation(request_id, length, abs(metric))


class LearnsAfterAll(Sound):
    learns = False


class OutlinesAsText(Sound):
    def outline(self) -> str:
        return "trains each trial in two steps"


class IgnoresOptions(Sound):
    class config_model(Config):
        model_config = ConfigDict(extra="ignore")


class ForgetsTheBest(Sound):
    def state(self) -> Any:
        return {"created": self.created, "done": self.done}


class CountsSnapshots(Sound):
    def state(self) -> Any:
        self.created += 1
        return super().state()


class LeavesStoppedTrials(Sound):
    def on_validation(self, request_id: int, length: int | None, metric: float) -> Sequence[Action]:
        return [action for action in super().on_validation(request_id, length, metric) if not isinstance(action, Close)]


class ReplacesForever(Sound):
    def on_exit(self, request_id: int, reason: str) -> Sequence[Action]:
        self.created += 1
        return [Create(self.created - 1, self.sample(request_id)), Train(self.created - 1, self.length)]


class WaitsForTheInvalid(Sound):
    def on_exit(self, request_id: int, reason: str) -> Sequence[Action]:
        return [Create(self.created, {}, source=99)] if reason == INVALID_HP else super().on_exit(request_id, reason)


class ReusesIds(Sound):
    def on_exit(self, request_id: int, reason: str) -> Sequence[Action]:
        return [Create(request_id, self.sample(request_id)), Train(request_id, self.length)]


class ClosesTheExited(Sound):
    def on_exit(self, request_id: int, reason: str) -> Sequence[Action]:
        return [Close(request_id), *super().on_exit(request_id, reason)]


class TrainsToTheSameLength(Sound):
    def on_validation(self, request_id: int, length: int | None, metric: float) -> Sequence[Action]:
        actions = super().on_validation(request_id, length, metric)
        return [Train(request_id, length) if isinstance(action, Train) else action for action in actions]


class OrdersFractions(Sound):
    @property
    def length(self) -> Any:
        return self.config.max_length.value / 4


class AddsASet(Sound):
    def sample(self, trial: int) -> Mapping[str, Any]:
        return {**super().sample(trial), "tags": {"a"}}


class TurnsListsIntoTuples(Sound):
    def sample(self, trial: int) -> Mapping[str, Any]:
        return {**super().sample(trial), "kernel": (3, 3)}


class LeavesTheRange(Sound):
    def sample(self, trial: int) -> Mapping[str, Any]:
        return {**super().sample(trial), "layers": trial * 10}


class ForgetsConstants(Sound):
    def sample(self, trial: int) -> Mapping[str, Any]:
        return {name: value for name, value in super().sample(trial).items() if name != "global_batch_size"}


class AddsMetrics(Sound):
    def on_validation(self, request_id: int, length: int | None, metric: float) -> Sequence[Action]:
        actions = super().on_validation(request_id, length, metric)
        self.best -= 2 * abs(metric)
        return actions


class CountsExitedTwice(Sound):
    def on_exit(self, request_id: int, reason: str) -> Sequence[Action]:
        self.done += 1
        return super().on_exit(request_id, reason)


class ForgetsProgress(Sound):
    def progress(self, lengths: Mapping[int, float]) -> float:
        return len(lengths) % 2 / 2


class TakesFromTheSpace(Sound):
    def sample(self, trial: int) -> Mapping[str, Any]:
        self.space.pop("dropout", None)  # type: ignore[attr-defined]
        return super().sample(trial)


class TakesLengths(Sound):
    def progress(self, lengths: Mapping[int, float]) -> float:
        lengths.clear()  # type: ignore[attr-defined]
        return super().progress(lengths)


class HasNoLength(Sound):
    class config_model(BaseModel):
        steps: int = 10
        max_trials: int = 6

    @property
    def length(self) -> int:
        return self.config.steps  # type: ignore[attr-defined]


class InventsALength(Sound):
    class config_model(Config):
        max_length: PositiveLength = 10  # type: ignore[assignment]


class DoublesAnOption(Sound):
    class config_model(Config):
        @field_validator("max_trials")
        @classmethod
        def _twice(cls, trials: int) -> int:
            return 2 * trials


CAUGHT_BY: dict[type[Sound], list[str]] = {
    UsesTheGlobalGenerator: ["the_same_events_give_the_same_actions"],
    SeedsTheGlobalGenerator: ["the_same_events_give_the_same_actions"],
    ForgetsRecordedActions: ["recorded_actions_win"],
    AnswersForItself: ["recorded_actions_win"],
    SharesItsTrials: ["the_same_events_give_the_same_actions"],
    ReadsTheClock: ["another_process_gives_the_same_actions"],
    ReadsTheTimeOfDay: ["another_process_gives_the_same_actions"],
    SeedsWithAHash: ["another_process_gives_the_same_actions"],
    ForgetsTheBest: ["a_snapshot_after_any_event_changes_nothing"],
    CountsSnapshots: ["a_snapshot_after_any_event_changes_nothing"],
    LeavesStoppedTrials: ["every_trial_is_closed[options0-all succeed]"],
    ReplacesForever: ["every_trial_is_closed[options0-all fail]"],
    WaitsForTheInvalid: ["every_action_is_possible[options0-all are invalid-order]"],
    ReusesIds: ["every_action_is_possible[options0-mixed-request_id]"],
    ClosesTheExited: ["every_action_is_possible[options0-mixed-order]"],
    TrainsToTheSameLength: ["every_action_is_possible[options0-all succeed-length]"],
    OrdersFractions: ["every_action_is_possible[options0-all succeed-length]"],
    AddsASet: ["actions_are_json"],
    TurnsListsIntoTuples: ["actions_are_json"],
    LeavesTheRange: ["hyperparameters_are_in_the_space"],
    ForgetsConstants: ["hyperparameters_are_in_the_space"],
    TriesOnePoint: ["trials_have_different_hyperparameters"],
    IgnoresTheSeed: ["another_seed_tries_other_hyperparameters"],
    PrefersLargeMetrics: ["smaller_metrics_are_better"],
    PrefersTheMiddle: ["smaller_metrics_are_better"],
    NeverLearns: ["smaller_metrics_are_better"],
    LearnsAfterAll: ["smaller_metrics_are_better"],
    OutlinesAsText: ["the_outline_consists_of_lines"],
    AddsMetrics: ["any_metric_is_accepted[options0-True]"],
    CountsExitedTwice: ["progress_never_decreases"],
    ForgetsProgress: ["progress_never_decreases"],
    TakesFromTheSpace: ["arguments_are_left_unchanged"],
    TakesLengths: ["arguments_are_left_unchanged"],
    HasNoLength: ["the_length_of_training_is_required"],
    InventsALength: ["the_length_of_training_is_required"],
    IgnoresOptions: ["an_unknown_option_is_refused"],
    DoublesAnOption: ["a_dumped_config_is_equal"],
}


@det_core.hookimpl
def det_search_methods() -> Iterator[SearchMethodSpec]:
    for method in (Sound, *CAUGHT_BY):
        target = f"{__name__}:{method.__name__}"
        yield SearchMethodSpec(name=method.__name__, target=target, config_model=f"{__name__}:_{method.__name__}Config")


for _method in (Sound, *CAUGHT_BY):
    globals()[f"_{_method.__name__}Config"] = _method.config_model
