"""Compliance suite for search methods. A search that passes it resumes exactly, and ends whatever its trials do.

A file with these lines tests your registered search method (`docs/searching.md`)::

    class TestHalton(SearchMethodCompliance):
        name = "halton"
        options = ({"max_length": {"batches": 100}, "max_trials": 7},)
"""

from __future__ import annotations

from det_testing.search_method._action_tests import SearchActionTests
from det_testing.search_method._config_tests import SearchConfigTests
from det_testing.search_method._learning_tests import SearchLearningTests
from det_testing.search_method.replay_tests import SearchReplayTests

__all__ = ["SearchMethodCompliance"]


class SearchMethodCompliance(SearchReplayTests, SearchActionTests, SearchLearningTests, SearchConfigTests):
    """Base class for the tests of a search method. Subclasses set ``name`` and ``options``.

    Further attributes: ``hyperparameters``, ``learns``, ``most_events``, ``expected_failures``. The fixture
    ``context_dir`` may be overridden. Redefining a test is an error.
    """
