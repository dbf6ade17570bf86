"""Rehearsals of launches, which ``det doctor`` makes."""

from __future__ import annotations

import itertools
import re
from types import SimpleNamespace

import pytest

from det_core.errors import LaunchError
from det_core.interfaces.launcher import Exit, LaunchRequest, Phase, Status
from det_core.launch import launch_rehearsal
from det_core.launch.launch_rehearsal import rehearse_launch
from det_core.launch.local import LocalConfig, LocalLauncher
from det_core.version import __version__
from tests.runner.played_launcher import PlayedAllocation, PlayedLauncher


@pytest.mark.integration
def test_a_rehearsal_describes_the_nodes() -> None:
    assert f"det-core {__version__}" in rehearse_launch(LocalLauncher(LocalConfig()), 1, {})


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (Status(phase=Phase.QUEUED, handle="job 7", message="no node"), "it still waits (job 7; no node)"),
        (Status(phase=Phase.STARTING, nodes=["one"], handle="job 7"), "it is still starting (job 7)"),
    ],
    ids=["waits", "starts"],
)
def test_a_launch_that_takes_too_long_is_killed_and_described(
    monkeypatch: pytest.MonkeyPatch, status: Status, message: str
) -> None:
    clock = itertools.count(step=50)
    monkeypatch.setattr(launch_rehearsal, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(PlayedAllocation, "status", lambda self: status)
    launcher = PlayedLauncher(None)
    with pytest.raises(LaunchError, match=re.escape(f"a launch has not ended after 120 s, {message}")):
        rehearse_launch(launcher, 1, {})
    assert launcher.allocations[0].calls == ["kill", "close"]


def test_a_launch_that_fails_is_described() -> None:
    def work(request: LaunchRequest) -> Exit:
        for line in ("a", "b", "c", "d"):
            request.log(0, "stderr", line)
        request.log(None, "det", "the launcher's own line")
        return Exit(code=3, message="job 7 failed")

    expected = "a launch on no node failed: job 7 failed; b; c; d; the launcher's own line"
    with pytest.raises(LaunchError, match=expected):
        rehearse_launch(PlayedLauncher(work), 1, {})


def test_a_rehearsal_needs_the_slots_of_a_trial() -> None:
    with pytest.raises(LaunchError, match="3 slots"):
        rehearse_launch(LocalLauncher(LocalConfig()), 3, {})


@pytest.mark.parametrize(("version", "is_named"), [(__version__, False), ("0.0.9", True)])
def test_nodes_with_another_release_are_named(*, version: str, is_named: bool) -> None:
    """An image keeps the release that it was built with."""

    def work(request: LaunchRequest) -> Exit:
        request.log(0, "stdout", f"n0: Python 3.11.7, det-core {version}, 0 GPUs")
        return Exit(code=0)

    described = rehearse_launch(PlayedLauncher(work), 1, {})
    assert described.startswith(f"n0: Python 3.11.7, det-core {version}, 0 GPUs")
    assert ("install the same release" in described) is is_named
