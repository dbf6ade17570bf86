"""Compliance suite for observers. An observer that passes it can be attached to any experiment.

A file with these lines tests your registered observer (`docs/observers.md`)::

    class TestJsonLines(ObserverCompliance):
        name = "jsonl"

        @pytest.fixture
        def options(self, tmp_path):
            return {"directory": str(tmp_path / "events")}

        @pytest.fixture
        def arrived(self, tmp_path):
            return lambda: "".join(path.read_text() for path in (tmp_path / "events").glob("*"))
"""

from __future__ import annotations

from det_testing.observer._config_tests import ObserverConfigTests
from det_testing.observer._delivery_tests import ObserverDeliveryTests
from det_testing.observer._life_cycle_tests import ObserverLifeCycleTests

__all__ = ["ObserverCompliance"]


class ObserverCompliance(ObserverConfigTests, ObserverDeliveryTests, ObserverLifeCycleTests):
    """Base class for the tests of an observer. Subclasses set ``name`` and override ``options`` and ``arrived``.

    Further attributes: ``arriving``, ``secrets``, ``module_budget``, ``expected_failures``. The fixture
    ``unreachable`` may be overridden, too. Redefining a test is an error.
    """
