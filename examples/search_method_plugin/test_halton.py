"""The plugin passes det's compliance suite.

To run it, type ``pip install 'det-core[testing]' .``, then ``pytest test_halton.py``.
"""

from __future__ import annotations

import pytest
from det_testing.search_method import SearchMethodCompliance

from det_core.config import parse_config
from det_core.errors import ConfigError


class TestHalton(SearchMethodCompliance):
    name = "halton"
    learns = False
    options = (
        {"max_length": {"batches": 100}, "max_trials": 7, "max_concurrent_trials": 2},
        {"max_length": 5, "max_trials": 1},
    )


def test_too_many_ranges_are_refused() -> None:
    searcher = {"name": "halton", "metric": "loss", "max_length": 5, "max_trials": 1}
    space = {f"x{number}": {"type": "int", "minval": 0, "maxval": 9} for number in range(11)}
    with pytest.raises(ConfigError, match="at most 10 ranges, but there are 11"):
        parse_config({"entrypoint": "model_def:Trial", "searcher": searcher, "hyperparameters": space})
