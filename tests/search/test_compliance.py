"""Compliance suite on all search methods of det-core."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from det_testing.search_method import SearchMethodCompliance
from det_testing.search_method.replay_tests import play_in_another_process
from det_testing.search_method.search_player import SCENARIOS

METHOD = """
import random
from det_core.config import sample_hyperparameters
from det_core.interfaces.search_method import Close, Create, SearchMethod, Train

class Doubling(SearchMethod):
    '''Search that trains each trial twice as long as the one before.'''

    def __init__(self, options, hyperparameters, seed):
        self.most, self.space, self.rng = options["most"], hyperparameters, random.Random(seed)

    def start(self):
        return self.try_one(0)

    def try_one(self, request_id):
        if request_id == self.most:
            return []
        return [Create(request_id, sample_hyperparameters(self.space, self.rng)), Train(request_id, 2**request_id)]

    def on_validation(self, request_id, length, metric):
        return [Close(request_id), *self.try_one(request_id + 1)]

    def on_exit(self, request_id, reason):
        return self.try_one(request_id + 1)

    def progress(self, lengths):
        return sum(lengths.values()) / 2**self.most

    def replay(self, event, arguments, actions):
        return actions
"""

HALVING = {"max_length": {"epochs": 16}, "max_trials": 20, "divisor": 2}


class TestSingle(SearchMethodCompliance):
    name = "single"
    learns = False
    options = ({"max_length": {"batches": 5}},)


class TestRandom(SearchMethodCompliance):
    name = "random"
    learns = False
    options = ({"max_length": 5, "max_trials": 9, "max_concurrent_trials": 3},)


class TestGrid(SearchMethodCompliance):
    name = "grid"
    learns = False
    expected_failures: ClassVar = {"test_another_seed_tries_other_hyperparameters": "a grid does not depend on a seed"}
    options = ({"max_length": {"records": 5}, "max_concurrent_trials": 3},)


class TestAsyncHalving(SearchMethodCompliance):
    name = "async_halving"
    options = ({"num_rungs": 3, **HALVING}, {"num_rungs": 3, "stop_once": True, **HALVING})


class TestAdaptiveAsha(SearchMethodCompliance):
    name = "adaptive_asha"
    options = ({"mode": "conservative", **HALVING}, {"mode": "aggressive", "stop_once": True, **HALVING})


class TestPbt(SearchMethodCompliance):
    name = "pbt"
    options = (
        {
            "population_size": 6,
            "num_rounds": 4,
            "length_per_round": {"batches": 3},
            "replace_function": {"truncate_fraction": 0.5},
            "explore_function": {"resample_probability": 0.3, "perturb_factor": 0.2},
        },
    )


@pytest.mark.integration
class TestCustom(SearchMethodCompliance):
    name = "custom"
    learns = False
    options: ClassVar[tuple[dict[str, Any], ...]] = (
        {"method": "mine:Doubling", "options": {"most": 3}, "unit": "batches"},
    )

    @pytest.fixture
    def context_dir(self, tmp_path: Path) -> Path:
        (tmp_path / "mine.py").write_text(METHOD)
        return tmp_path


BUILTIN = (TestSingle, TestRandom, TestGrid, TestAsyncHalving, TestAdaptiveAsha, TestPbt)


@pytest.mark.integration
def test_other_processes_give_the_same_actions(tmp_path: Path) -> None:
    """The suite's test of this rule starts two processes for each method, and runs in the soak."""
    searches = [
        (suite.experiment_config(options), str(tmp_path), SCENARIOS["mixed"], suite.most_events)
        for suite in BUILTIN
        for options in suite.options
    ]
    first, second = (play_in_another_process(searches, number) for number in (1, 2))
    assert len(first) == 8
    assert first == second
