"""Isolation of tests. Each test is a separate job."""

from __future__ import annotations

import uuid

import pytest

from . import job


@pytest.fixture(autouse=True)
def identity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", uuid.uuid4().hex)
    monkeypatch.setenv("DET_COMM_KEY", job.KEY)
