"""Trackio's database of one project, written in transactions.

`trackio.Run` can neither replace what it has written nor report that it could not write. The tables are therefore
written here, whereas Trackio creates them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import datetime
from typing import Any, Final

from trackio import utils
from trackio.sqlite_storage import SQLiteStorage

from det_core.errors import DetError

_TIMEOUT: Final = 5.0
"""Number of seconds to wait for other writers of the database."""
_NEEDED: Final = {"timestamp", "run_id", "run_name", "step", "metrics", "log_id"}
"""Columns of the table of metrics that this module writes, which older releases of Trackio do not create."""
_MERGE_METRICS: Final = """
    INSERT INTO metrics (timestamp, run_id, run_name, step, metrics, log_id) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (log_id) WHERE log_id IS NOT NULL DO UPDATE
    SET timestamp = excluded.timestamp, metrics = json_patch(metrics, excluded.metrics)
"""
_REPLACE_CONFIG: Final = """
    INSERT OR REPLACE INTO configs (run_id, run_name, config, created_at) VALUES (?, ?, ?, ?)
"""


class TrackioError(DetError):
    """Trackio's store cannot be used."""


class RunWriter:
    """Writer of one run within a transaction.

    Args:
        connection: the database of the project.
        run_id: id of the run, unique within the project.
        name: name that Trackio shows.
    """

    def __init__(self, connection: sqlite3.Connection, run_id: str, name: str) -> None:
        self._connection = connection
        self._run_id = run_id
        self._name = name

    def exists(self) -> bool:
        """Return whether the run has a config."""
        return bool(self._connection.execute("SELECT 1 FROM configs WHERE run_id = ?", (self._run_id,)).fetchone())

    def clear(self) -> None:
        """Remove all metrics of the run."""
        self._connection.execute("DELETE FROM metrics WHERE run_id = ?", (self._run_id,))

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Replace the config of the run.

        Args:
            config: JSON-compatible values, with the time of its creation as ``_Created``.
        """
        values = (self._run_id, self._name, _to_json(config), config["_Created"])
        self._connection.execute(_REPLACE_CONFIG, values)

    def write_metrics(self, group: str, step: int, metrics: Mapping[str, Any], time: datetime | None) -> None:
        """Write the metrics of a group at a step, merged with those that are there already.

        Args:
            group: group of the metrics, which their names begin with.
            step: number of batches trained.
            metrics: names mapped to JSON-compatible values, NaN or infinities.
            time: time of the report.
        """
        named = {f"{group}/{name}": value for name, value in metrics.items()}
        written = (time.isoformat() if time else "", self._run_id, self._name, step, _to_json(named))
        self._connection.execute(_MERGE_METRICS, (*written, f"{self._run_id}/{step}/{group}"))


class TrackioProject:
    """Database of one project in Trackio's directory.

    Args:
        name: name of the project.

    Raises:
        TrackioError: Trackio does not accept the name, or keeps no database in its directory.
    """

    def __init__(self, name: str) -> None:
        try:
            SQLiteStorage.validate_project_name(name)
        except ValueError as error:
            raise TrackioError(f"{error} Set observers.trackio.project") from error
        if utils.get_storage_mode() != "sqlite":
            raise TrackioError(
                f"Trackio writes no database in {utils.TRACKIO_DIR}, because it is on a network file system; set "
                "TRACKIO_DIR to a directory on a local disk, or TRACKIO_STORAGE_MODE=sqlite"
            )
        self._name = name
        self._path = SQLiteStorage.get_project_db_path(name)

    @contextmanager
    def writing(self, run_id: str, name: str) -> Iterator[RunWriter]:
        """Write a run in one transaction.

        Args:
            run_id: id of the run, unique within the project.
            name: name that Trackio shows.

        Raises:
            TrackioError: nothing could be written.
        """
        try:
            with closing(self._connect()) as connection:
                connection.execute("BEGIN IMMEDIATE")
                yield RunWriter(connection, run_id, name)
                connection.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            raise TrackioError(
                f"cannot write to Trackio's database {self._path}: {error}; correct TRACKIO_DIR, or end the process "
                "that holds the database"
            ) from error

    def _connect(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self._path, timeout=_TIMEOUT, isolation_level=None)
        columns = {column for _, column, *_ in connection.execute("PRAGMA table_info(metrics)")}
        if not columns >= _NEEDED:  # new, or written by an older release
            SQLiteStorage.init_db(self._name)
        return connection


def _to_json(values: Mapping[str, Any]) -> str:
    return json.dumps(utils.serialize_values(values))
