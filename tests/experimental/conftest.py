"""Fixtures of the SDK tests. They provide a tracking store with a trained experiment, and the toy framework."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..cli.conftest import Record, record, store, trained  # noqa: F401
from ..runner.conftest import (  # noqa: F401
    _quick_processes,
    context_dir,
    fork_path,
    fork_words,
    installed,
    toy_framework,
    toy_site,
)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    for name in ("DET_MASTER", "DET_MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
