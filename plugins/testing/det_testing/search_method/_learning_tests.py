"""Tests that the trials of a search depend on its seed, and on the results of earlier trials."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from det_core.config import parse_config
from det_core.search.method_selection import open_search_method
from det_testing.search_method._search_method_suite import Play, SearchMethodSuite
from det_testing.search_method.search_player import SearchPlayer

_SEEDS = range(3)


class SearchLearningTests(SearchMethodSuite):
    """Tests that a search tries different hyperparameters, and prefers those with better results."""

    def test_trials_have_different_hyperparameters(self, play: Play) -> None:
        """A random generator that is made anew for each trial draws the same values for all."""
        tried = [trial.hparams for trial in play("all succeed").created.values()]
        assert len(tried) == 1 or any(hparams != tried[0] for hparams in tried), f"all {len(tried)} trials are alike"

    def test_another_seed_tries_other_hyperparameters(self, config: dict[str, Any], context_dir: Path) -> None:
        """Users repeat a search with another ``experiment_seed`` to tell luck from merit."""
        first, second = (self._search(config, context_dir, seed)[0].created for seed in _SEEDS[:2])
        assert [trial.hparams for trial in first.values()] != [trial.hparams for trial in second.values()]

    def test_smaller_metrics_are_better(self, context_dir: Path) -> None:
        """The hyperparameters that were trained most are smaller if small ones have small metrics, and not large ones.

        A method that does not learn from metrics sets ``learns = False``.
        """
        small, large = (
            [
                self._search(self.experiment_config(options), context_dir, seed, sign=sign)[1]
                for options in self.options
                for seed in _SEEDS
            ]
            for sign in (1, -1)
        )
        if self.learns:
            assert sum(small) < sum(large), (
                "trials with smaller metrics are not preferred; `metric` is smaller if the trial is better, whatever "
                "`smaller_is_better` is. Set `learns = False` if the method does not depend on metrics, and otherwise "
                "`options` with enough trials"
            )
        else:
            assert small == large, "the search depends on metrics; delete `learns = False`"

    def _search(
        self, config: Mapping[str, Any], context_dir: Path, seed: int, *, sign: int = 1
    ) -> tuple[SearchPlayer, float]:
        """Play a search whose metrics grow with the hyperparameters, or shrink with the sign -1.

        Returns:
            The player, and the mean position, 0 to 1, of hyperparameters in their ranges, weighted by trained length.
        """
        experiment = parse_config({**config, "reproducibility": {"experiment_seed": seed}})
        rng = random.Random(0)  # noqa: S311
        position = trained = 0.0
        with open_search_method(experiment, context_dir) as method:
            player = SearchPlayer(method)
            while player.ordered and len(player.events) < self.most_events:
                trial = rng.choice(list(player.ordered))
                length = player.ordered[trial]
                weight = (length or 1) - player.trained.get(trial, 0)
                places = list(_positions(experiment.hyperparameters, player.created[trial].hparams))
                place = sum(places) / max(len(places), 1)
                position, trained = position + weight * place, trained + weight
                player.report("on_validation", trial, length, sign * place)
        return player, position / trained


def _positions(space: Mapping[str, Any], values: Mapping[str, Any]) -> Iterator[float]:
    """Yield the position of each number in its range, 0 to 1."""
    for name, choice in space.items():
        value = values[name]
        if isinstance(choice, Mapping):
            yield from _positions(choice, value)
        elif choice.type in ("int", "double", "log") and choice.minval < choice.maxval:
            number = math.log(value, choice.base) if choice.type == "log" else value
            yield (number - choice.minval) / (choice.maxval - choice.minval)
