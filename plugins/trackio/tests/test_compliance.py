"""Compliance suite for observers, run with Trackio's store."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest
from det_testing.observer import ObserverCompliance


class TestTrackio(ObserverCompliance):
    name = "trackio"

    @pytest.fixture
    def options(self) -> Mapping[str, Any]:
        return {"project": f"suite-{uuid.uuid4().hex}"}

    @pytest.fixture
    def arrived(self, options: Mapping[str, Any]) -> Callable[[], str]:
        from .history import history, runs

        project = options["project"]
        return lambda: str([history(project, run) for run in runs(project)])

    @pytest.fixture
    def unreachable(self) -> Iterator[Mapping[str, Any]]:
        """Return a project whose database another process holds."""
        from trackio.sqlite_storage import SQLiteStorage

        name = f"held-{uuid.uuid4().hex}"
        with closing(sqlite3.connect(SQLiteStorage.init_db(name))) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            yield {"project": name}
