"""Attributes and fixtures that all parts of the suite for search methods share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import pytest

from det_core.config import ExperimentConfig, parse_config
from det_core.interfaces.search_method import SearchMethod
from det_core.search.method_selection import open_search_method
from det_testing.search_method.search_player import SCENARIOS, SearchPlayer, play_search
from det_testing.suite import ComplianceSuite

NewMethod = Callable[[], SearchMethod]
"""Function that returns a new search method, which has been opened and not started."""
Play = Callable[..., SearchPlayer]
"""Function that plays a new search in a scenario, by default ``mixed``."""


class SearchMethodSuite(ComplianceSuite):
    """Attributes that describe the search method, set by subclasses."""

    name: ClassVar[str] = ""
    """Name of the search method, as in ``searcher.name``. Its distribution must be installed."""
    options: ClassVar[Sequence[Mapping[str, Any]]] = ()
    """Options beside ``name`` and ``metric`` in the ``searcher`` block. Each test runs once with each."""
    hyperparameters: ClassVar[Mapping[str, Any]] = {
        "learning_rate": {"type": "log", "base": 10, "minval": -4, "maxval": 0, "count": 2},
        "layers": {"type": "int", "minval": 1, "maxval": 8, "count": 2},
        "optimizer": {"name": {"type": "categorical", "vals": ["sgd", "adam"]}, "nesterov": True},
        "schedule": {
            "type": "categorical",
            "vals": [
                "constant",
                {"name": "step", "gamma": {"type": "double", "minval": 0.1, "maxval": 0.9, "count": 2}},
            ],
        },
        "dropout": {"type": "double", "minval": 0.1, "maxval": 0.5, "count": 2},
        "global_batch_size": 32,
    }
    """The section ``hyperparameters`` of the config. It should use everything that the method supports."""
    learns: ClassVar[bool] = True
    """Whether the search depends on the metrics of its trials. If so, one of ``options`` must have enough trials."""
    most_events: ClassVar[int] = 2000
    """Number of events after which a search that has not ended counts as endless."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run each test that takes a config once with each item of ``options``."""
        if "config" in metafunc.fixturenames:
            assert self.name and self.options, (
                f"{type(self).__name__} must set name and options, for example: name = 'halton'; "
                "options = ({'max_length': {'batches': 100}, 'max_trials': 7},)"
            )
            configs = [self.experiment_config(options) for options in self.options]
            metafunc.parametrize("config", configs, ids=[f"options{number}" for number in range(len(configs))])

    @classmethod
    def experiment_config(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the config of an experiment with these options of the searcher."""
        return {
            "entrypoint": "model_def:Trial",
            "searcher": {"name": cls.name, "metric": "loss", **options},
            "hyperparameters": dict(cls.hyperparameters),
            "reproducibility": {"experiment_seed": 7},
        }

    @pytest.fixture
    def context_dir(self, tmp_path: Path) -> Path:
        """Return the directory of the user's code. Subclasses whose method reads it may override this fixture."""
        return tmp_path

    @pytest.fixture
    def experiment(self, config: dict[str, Any]) -> ExperimentConfig:
        """Return the parsed config."""
        return parse_config(config)

    @pytest.fixture
    def new_method(self, experiment: ExperimentConfig, context_dir: Path) -> Iterator[NewMethod]:
        """Return a function that opens the method. All methods are closed after the test."""
        with ExitStack() as stack:
            yield lambda: stack.enter_context(open_search_method(experiment, context_dir))

    @pytest.fixture
    def play(self, new_method: NewMethod) -> Play:
        """Return a function that plays a new search."""
        return lambda scenario="mixed", **results: play_search(
            new_method(), SCENARIOS[scenario], most_events=self.most_events, **results
        )
