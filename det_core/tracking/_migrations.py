"""How a database of an older release gets the tables of this one.

Each step says it in SQL of its own, not by today's tables: those will have moved on when it runs.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from sqlalchemy import Connection, text

if TYPE_CHECKING:
    from collections.abc import Callable

_TYPES = {
    "sqlite": {"id": "INTEGER", "ref": "INTEGER", "time": "DATETIME"},
    "postgresql": {"id": "BIGSERIAL", "ref": "BIGINT", "time": "TIMESTAMP WITH TIME ZONE"},
}


def _cluster_id(connection: Connection) -> None:
    connection.execute(text("ALTER TABLE det_schema ADD COLUMN cluster_id TEXT NOT NULL DEFAULT ''"))
    connection.execute(text("UPDATE det_schema SET cluster_id = :new"), {"new": uuid.uuid4().hex})


def _searcher_metadata_system_metrics_and_sources(connection: Connection) -> None:
    _cluster_id(connection)
    types = _TYPES[connection.dialect.name]
    for statement in (
        "ALTER TABLE trials ADD COLUMN metadata TEXT NOT NULL DEFAULT '{}'",
        "ALTER TABLE trials ADD COLUMN searcher_length BIGINT",
        "ALTER TABLE trials ADD COLUMN searcher_completed BIGINT",
        "ALTER TABLE trials ADD COLUMN searcher_metric TEXT",
        f"""
        CREATE TABLE system_metrics (
            id {types["id"]} NOT NULL PRIMARY KEY,
            trial_id {types["ref"]} NOT NULL REFERENCES trials (id),
            run_id BIGINT NOT NULL,
            "group" TEXT NOT NULL,
            metrics TEXT NOT NULL,
            time {types["time"]} NOT NULL
        )
        """,
        "CREATE INDEX system_metrics_of_trial ON system_metrics (trial_id, id)",
        f"""
        CREATE TABLE trial_sources (
            checkpoint_uuid TEXT NOT NULL,
            trial_id {types["ref"]} NOT NULL REFERENCES trials (id),
            model_id BIGINT,
            model_version BIGINT,
            PRIMARY KEY (checkpoint_uuid, trial_id)
        )
        """,
    ):
        connection.execute(text(statement))


MIGRATIONS: list[Callable[[Connection], None]] = [_searcher_metadata_system_metrics_and_sources]
"""Step n leads from version n + 1 to version n + 2; a new database starts at the last version. Only append."""
