"""Every test of the suite for launchers notices a launcher with a defect."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from det_core.launch import node_agent
from det_core.testing.launcher import LauncherCompliance
from tests.testing import broken_launchers
from tests.testing.broken_launchers import CAUGHT_BY, Sound, launcher_name
from tests.testing.defects import caught_tests, list_tests, make_defect_tests

pytestmark = pytest.mark.usefixtures("registered")

PLUGIN = broken_launchers.__name__
UNIT = {
    "test_wrong_options_are_refused_with_the_config",
    "test_options_can_be_stored",
    "test_the_launcher_describes_its_slots",
}


class BrokenLaunchers(LauncherCompliance):
    options: ClassVar = {"slots": 2}
    sends_secrets = False
    code_size = 2 << 20

    @pytest.fixture(autouse=True)
    def _hurry(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Wait less long for the end of output that processes keep open."""
        monkeypatch.setattr(node_agent, "_CLOSE_SECONDS", 1.0)


def describe(launcher: type[Sound]) -> dict[str, Any]:
    """Return the attributes of the suite for a launcher."""
    return {"name": launcher_name(launcher), **launcher.claims}


INTEGRATION = list_tests(LauncherCompliance) - UNIT
globals().update(make_defect_tests(BrokenLaunchers, CAUGHT_BY, describe, integration=INTEGRATION))


def test_every_test_of_the_suite_notices_a_defect() -> None:
    assert caught_tests(CAUGHT_BY) == list_tests(LauncherCompliance)
