"""Every test of the suite for observers notices an observer with a defect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from det_testing.observer import ObserverCompliance, _delivery_tests

from det_core.core import event_stream, observer_thread
from plugins.testing.tests import broken_observers
from plugins.testing.tests.broken_observers import CAUGHT_BY, PIN, Sound
from plugins.testing.tests.defects import caught_tests, list_tests, make_defect_tests

pytestmark = pytest.mark.usefixtures("registered")

PLUGIN = broken_observers.__name__


class BrokenObservers(ObserverCompliance):
    secrets = ("pin",)

    @pytest.fixture(autouse=True)
    def _hurry(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Abandon observers that hang sooner."""
        monkeypatch.setattr(observer_thread, "LINGER", 0.1)
        monkeypatch.setattr(event_stream, "END_TIMEOUT", 3.0)
        monkeypatch.setattr(_delivery_tests, "_FLUSH_TIMEOUT", 1.5)

    @pytest.fixture
    def options(self, tmp_path: Path) -> Mapping[str, Any]:
        return {"directory": str(tmp_path / "lines"), "pin": PIN}

    @pytest.fixture
    def arrived(self, tmp_path: Path) -> Callable[[], str]:
        return lambda: "".join(path.read_text() for path in (tmp_path / "lines").glob("lines"))

    @pytest.fixture
    def unreachable(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**options, "unreachable": True}


def describe(observer: type[Sound]) -> dict[str, Any]:
    """Return the attributes of the suite for an observer."""
    return {
        "name": observer.__name__,
        "module_budget": observer.module_budget,
        "arriving": observer.arriving,
    }


INTEGRATION = {"test_the_plugin_module_is_quick_to_import"}
globals().update(make_defect_tests(BrokenObservers, CAUGHT_BY, describe, integration=INTEGRATION))


@pytest.mark.soak
class TestSound(BrokenObservers):
    name = "Sound"
    module_budget = Sound.module_budget
    arriving = Sound.arriving


def test_every_test_of_the_suite_notices_a_defect() -> None:
    assert caught_tests(CAUGHT_BY) == list_tests(ObserverCompliance)
