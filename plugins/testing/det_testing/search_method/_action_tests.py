"""Tests of the actions of a search method, whatever its trials do."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from det_core.config import ExperimentConfig
from det_core.interfaces.search_method import action_to_json
from det_core.search.method_selection import normalize_searcher_metric
from det_testing.search_method._search_method_suite import NewMethod, Play, SearchMethodSuite
from det_testing.search_method.search_player import SCENARIOS

_HUGE = 1.7e308


class SearchActionTests(SearchMethodSuite):
    """Tests that the runner can carry out the actions, and that the search ends."""

    @pytest.mark.parametrize("scenario", SCENARIOS)
    def test_every_trial_is_closed(self, play: Play, scenario: str) -> None:
        """A trial that is never closed keeps its checkpoints and the state PAUSED, and an endless search never ends."""
        player = play(scenario)
        assert not player.ordered, f"the search has not ended after {len(player.events)} events; see most_events"
        assert player.created, "start() created no trial"
        assert player.created.keys() == player.closed

    @pytest.mark.parametrize("aspect", ["request_id", "order", "length"])
    @pytest.mark.parametrize("scenario", ["all succeed", "mixed", "all are invalid"])
    def test_every_action_is_possible(self, play: Play, scenario: str, aspect: str) -> None:
        """The runner stops a search that asks for the impossible.

        Request ids count from 0. A trial has one order at a time, and each is longer than the previous one.
        """
        assert play(scenario).problems[aspect] == []

    def test_actions_are_json(self, play: Play) -> None:
        """The tracking store keeps all actions as JSON, and compares them when the search is replayed."""
        for actions in play().actions:
            recorded = [action_to_json(action) for action in actions]
            assert json.loads(json.dumps(recorded, allow_nan=False)) == recorded

    def test_hyperparameters_are_in_the_space(self, play: Play, experiment: ExperimentConfig) -> None:
        """Trials find all hyperparameters of the config, with values of its ranges."""
        for trial in play().created.values():
            assert list(_misfits(experiment.hyperparameters, trial.hparams)) == [], (
                f"trial {trial.request_id}: {trial.hparams}"
            )

    @pytest.mark.parametrize("smaller_is_better", [True, False])
    def test_any_metric_is_accepted(self, play: Play, smaller_is_better: bool) -> None:
        """Trials may report NaN or an infinity, which the method receives as the worst finite number."""
        reported = (None, math.nan, math.inf, -math.inf, _HUGE, -_HUGE, 0.0, 1.0)
        metrics = [normalize_searcher_metric(metric, smaller_is_better=smaller_is_better) for metric in reported]
        player = play("mixed", metrics=metrics)
        assert player.created.keys() == player.closed
        assert json.loads(json.dumps(player.transcript(), allow_nan=False)) == player.transcript()
        json.dumps(player.method.state(), allow_nan=False)

    def test_progress_never_decreases(self, play: Play) -> None:
        """Progress is the share of the search that is done, 0 to 1, whatever length the trials have trained."""
        assert play().problems["progress"] == []

    def test_the_outline_consists_of_lines(self, new_method: NewMethod) -> None:
        """``det preview-search`` shows the outline of a search that has not started."""
        outline = new_method().outline()
        assert not isinstance(outline, str)
        assert [line for line in outline if not isinstance(line, str) or "\n" in line] == []

    def test_arguments_are_left_unchanged(self, play: Play, experiment: ExperimentConfig) -> None:
        """The runner uses the config after the method has read it."""
        before = copy.deepcopy(experiment)
        assert play().problems["arguments"] == []
        assert experiment == before


_FITS: Mapping[str, Callable[[Any, Any], bool]] = {
    "const": lambda choice, value: value == choice.val,
    "categorical": lambda choice, value: any(not list(_misfits({"": one}, {"": value})) for one in choice.vals),
    "int": lambda choice, value: type(value) is int and choice.minval <= value <= choice.maxval,
    "double": lambda choice, value: _between(value, choice.minval, choice.maxval),
    "log": lambda choice, value: _between(value, *sorted((choice.base**choice.minval, choice.base**choice.maxval))),
}
"""Functions of a hyperparameter and a value, by the type of the hyperparameter, which return whether they agree."""


def _between(value: Any, low: float, high: float) -> bool:
    slack = 1e-9 * max(abs(low), abs(high))  # rounding
    return type(value) in (int, float) and low - slack <= value <= high + slack


def _misfits(space: Mapping[str, Any], values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the names of hyperparameters that are missing, unknown or outside of their ranges."""
    yield from (prefix + name for name in space.keys() ^ values.keys())
    for name in space.keys() & values.keys():
        choice, value = space[name], values[name]
        if isinstance(choice, Mapping) and isinstance(value, Mapping):
            yield from _misfits(choice, value, f"{prefix}{name}.")
        elif not (_FITS[choice.type](choice, value) if hasattr(choice, "type") else choice == value):
            yield f"{prefix}{name}"
