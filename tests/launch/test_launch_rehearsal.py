"""Rehearsals of launches, which ``det doctor`` makes."""

from __future__ import annotations

import pytest

from det_core.errors import LaunchError
from det_core.launch.launch_rehearsal import rehearse_launch
from det_core.launch.local import LocalConfig, LocalLauncher
from det_core.version import __version__


@pytest.mark.integration
def test_a_rehearsal_describes_the_nodes() -> None:
    assert f"det-core {__version__}" in rehearse_launch(LocalLauncher(LocalConfig()), 1, {})


def test_a_rehearsal_needs_the_slots_of_a_trial() -> None:
    with pytest.raises(LaunchError, match="3 slots"):
        rehearse_launch(LocalLauncher(LocalConfig()), 3, {})
