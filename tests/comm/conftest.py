"""Isolation of tests, each of which is a separate job, and short waits in tests without processes."""

from __future__ import annotations

import uuid

import pytest

from det_core.comm import _collective_channel, _collectives, _link, _mesh, _ring_collectives

from . import job

TICK = 0.05
"""Seconds of waiting after which workers look around in tests without processes."""


@pytest.fixture(autouse=True)
def identity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", uuid.uuid4().hex)
    monkeypatch.setenv("DET_COMM_KEY", job.KEY)


@pytest.fixture(autouse=True)
def ticks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """Return the number of seconds of waiting after which workers look around."""
    if request.node.get_closest_marker("integration"):
        return _link.TICK
    for module in (_collective_channel, _collectives, _link, _mesh, _ring_collectives):
        monkeypatch.setattr(module, "TICK", TICK)
    monkeypatch.setattr(_link, "_TICK", 1000 * TICK)
    return TICK
