"""Tests of the options of a search method."""

from __future__ import annotations

from typing import Any

import pytest

from det_core.config import ExperimentConfig, parse_config
from det_core.errors import ConfigError
from det_testing.search_method._search_method_suite import SearchMethodSuite


class SearchConfigTests(SearchMethodSuite):
    """Tests that a mistake is found when the config is read, and not when the trials start."""

    def test_the_length_of_training_is_required(self, config: dict[str, Any]) -> None:
        """Trials train in the unit of ``max_length``, or of ``unit`` of the options if they have no such field."""
        if "max_length" not in type(parse_config(config).searcher.options).model_fields:
            return
        searcher = {key: value for key, value in config["searcher"].items() if key != "max_length"}
        with pytest.raises(ConfigError, match="max_length"):
            parse_config({**config, "searcher": searcher})

    def test_a_dumped_config_is_equal(self, experiment: ExperimentConfig) -> None:
        """The tracking store keeps the config, defaults included, and a resumed search reads it from there."""
        assert parse_config(experiment.dump()) == experiment

    def test_an_unknown_option_is_refused(self, config: dict[str, Any]) -> None:
        """A typing error in a config is found before anything starts."""
        with pytest.raises(ConfigError, match="no_such_option"):
            parse_config({**config, "searcher": {**config["searcher"], "no_such_option": 1}})
