"""The search method passes det's compliance suite."""

from __future__ import annotations

from det_testing.search_method import SearchMethodCompliance


class TestOptuna(SearchMethodCompliance):
    name = "optuna"
    options = ({"max_length": {"batches": 64}, "max_trials": 20, "max_concurrent_trials": 4},)
