"""Migrations of databases that an older release created.

Each migration contains literal SQL rather than the current table definitions, because these may have changed further
when the migration runs.
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

from sqlalchemy import Connection, text

from det_core.tracking._column_types import finite_or_none

if TYPE_CHECKING:
    from collections.abc import Callable

_TYPES = {
    "sqlite": {
        "id": "INTEGER",
        "counted": "INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT",
        "ref": "INTEGER",
        "time": "DATETIME",
        "number": "DOUBLE",
        "bytes": "BLOB",
    },
    "postgresql": {
        "id": "BIGSERIAL",
        "counted": "BIGSERIAL NOT NULL PRIMARY KEY",
        "ref": "BIGINT",
        "time": "TIMESTAMP WITH TIME ZONE",
        "number": "DOUBLE PRECISION",
        "bytes": "BYTEA",
    },
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


def _searches_and_models(connection: Connection) -> None:
    types = _TYPES[connection.dialect.name]
    for statement in (
        f"ALTER TABLE trials ADD COLUMN progress {types['number']} NOT NULL DEFAULT 0",
        "ALTER TABLE trials ADD COLUMN ordered BIGINT",
        "ALTER TABLE trials ADD COLUMN source_checkpoint TEXT",
        "DROP INDEX trials_of_experiment",
        "CREATE INDEX trials_of_request ON trials (experiment_id, request_id)",
        f"""
        CREATE TABLE search_events (
            experiment_id {types["ref"]} NOT NULL REFERENCES experiments (id),
            number BIGINT NOT NULL,
            event TEXT NOT NULL,
            actions TEXT NOT NULL,
            PRIMARY KEY (experiment_id, number)
        )
        """,
        f"""
        CREATE TABLE search_snapshots (
            experiment_id {types["ref"]} NOT NULL PRIMARY KEY REFERENCES experiments (id),
            number BIGINT NOT NULL,
            state TEXT NOT NULL
        )
        """,
        f"""
        CREATE TABLE models (
            id {types["counted"]},
            name TEXT NOT NULL UNIQUE,
            description TEXT NOT NULL,
            notes TEXT NOT NULL,
            owner TEXT NOT NULL,
            metadata TEXT NOT NULL,
            labels TEXT NOT NULL,
            archived BOOLEAN NOT NULL,
            last_version BIGINT NOT NULL,
            creation_time {types["time"]} NOT NULL,
            last_updated_time {types["time"]} NOT NULL
        )
        """,
        f"""
        CREATE TABLE model_versions (
            id {types["counted"]},
            model_id {types["ref"]} NOT NULL REFERENCES models (id),
            version BIGINT NOT NULL,
            checkpoint_uuid TEXT NOT NULL REFERENCES checkpoints (uuid),
            name TEXT NOT NULL,
            comment TEXT NOT NULL,
            notes TEXT NOT NULL,
            owner TEXT NOT NULL,
            metadata TEXT NOT NULL,
            labels TEXT NOT NULL,
            creation_time {types["time"]} NOT NULL,
            last_updated_time {types["time"]} NOT NULL,
            UNIQUE (model_id, version)
        )
        """,
        "CREATE INDEX model_versions_of_checkpoint ON model_versions (checkpoint_uuid)",
        f"ALTER TABLE metrics ADD COLUMN searcher_metric {types['number']}",
        "CREATE INDEX metrics_scored_by_value ON metrics (trial_id, searcher_metric)"
        " WHERE archived = false AND searcher_metric IS NOT NULL",
        "CREATE INDEX metrics_scored_by_step ON metrics (trial_id, steps_completed)"
        " WHERE archived = false AND searcher_metric IS NOT NULL",
    ):
        connection.execute(text(statement))
    _fill_searcher_metric(connection)


def _fill_searcher_metric(connection: Connection) -> None:
    of_experiments = text("SELECT trials.id, config FROM trials JOIN experiments ON experiments.id = experiment_id")
    validations = text("SELECT id, metrics FROM metrics WHERE trial_id = :trial AND \"group\" = 'validation'")
    fill = text("UPDATE metrics SET searcher_metric = :value WHERE id = :row")
    for trial_id, config in connection.execute(of_experiments).all():
        metric = (json.loads(config).get("searcher") or {}).get("metric")
        rows = connection.execute(validations, {"trial": trial_id}).all()
        values = [{"row": row, "value": finite_or_none(json.loads(metrics).get(metric))} for row, metrics in rows]
        if values:
            connection.execute(fill, values)


def _errors_of_checkpoints(connection: Connection) -> None:
    connection.execute(text("ALTER TABLE checkpoints ADD COLUMN error TEXT"))


def _partial_indexes(connection: Connection) -> None:
    """Recreate SQLite's indexes with the condition of the queries, because its planner does not equate false and 0."""
    if connection.dialect.name != "sqlite":
        return
    for name, column in (("value", "searcher_metric"), ("step", "steps_completed")):
        connection.execute(text(f"DROP INDEX metrics_scored_by_{name}"))
        connection.execute(
            text(
                f"CREATE INDEX metrics_scored_by_{name} ON metrics (trial_id, {column})"
                " WHERE archived = 0 AND searcher_metric IS NOT NULL"
            )
        )


def _placements_and_interruptions(connection: Connection) -> None:
    connection.execute(text("ALTER TABLE trials ADD COLUMN interruptions BIGINT NOT NULL DEFAULT 0"))
    connection.execute(text("ALTER TABLE trials ADD COLUMN placement TEXT NOT NULL DEFAULT ''"))


def _total_batches(connection: Connection) -> None:
    connection.execute(text("ALTER TABLE trials ADD COLUMN total_batches BIGINT"))


def _sizes_ends_of_runs_and_accounts(connection: Connection) -> None:
    _accounts(connection)
    for statement in (
        "ALTER TABLE runs ADD COLUMN end_reason TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE checkpoints ADD COLUMN size BIGINT NOT NULL DEFAULT 0",
        "DROP INDEX checkpoints_of_trial",
        "CREATE INDEX checkpoints_of_trial ON checkpoints (trial_id, state, size)",
    ):
        connection.execute(text(statement))
    fill = text("UPDATE checkpoints SET size = :size WHERE id = :row")
    rows = connection.execute(text("SELECT id, resources FROM checkpoints")).all()
    sizes = [{"row": row, "size": sum(json.loads(resources).values())} for row, resources in rows]
    if sizes:
        connection.execute(fill, sizes)


def _accounts(connection: Connection) -> None:
    types = _TYPES[connection.dialect.name]
    for statement in (
        f"""
        CREATE TABLE users (
            id {types["counted"]},
            name TEXT NOT NULL UNIQUE,
            role VARCHAR(32) NOT NULL,
            password TEXT NOT NULL,
            active BOOLEAN NOT NULL,
            creation_time {types["time"]} NOT NULL
        )
        """,
        f"""
        CREATE TABLE access_tokens (
            id {types["counted"]},
            digest TEXT NOT NULL UNIQUE,
            user_id {types["ref"]} REFERENCES users (id),
            kind VARCHAR(32) NOT NULL,
            scope VARCHAR(32) NOT NULL,
            label TEXT NOT NULL,
            trial_id BIGINT,
            run_id BIGINT,
            creation_time {types["time"]} NOT NULL,
            expires {types["time"]}
        )
        """,
        "CREATE INDEX access_tokens_of_user ON access_tokens (user_id)",
        "CREATE INDEX access_tokens_by_expiry ON access_tokens (expires)",
        f"""
        CREATE TABLE actions (
            id {types["counted"]},
            time {types["time"]} NOT NULL,
            "user" TEXT NOT NULL,
            action TEXT NOT NULL,
            target TEXT NOT NULL,
            address TEXT NOT NULL
        )
        """,
    ):
        connection.execute(text(statement))


def _answered_calls(connection: Connection) -> None:
    types = _TYPES[connection.dialect.name]
    connection.execute(
        text(
            f"""
            CREATE TABLE answered_calls (
                lane TEXT NOT NULL PRIMARY KEY,
                number BIGINT NOT NULL,
                answer {types["bytes"]} NOT NULL,
                time {types["time"]} NOT NULL
            )
            """
        )
    )


def _parents_of_tokens(connection: Connection) -> None:
    connection.execute(text("ALTER TABLE access_tokens ADD COLUMN parent_id BIGINT"))


def _webhooks_and_counts(connection: Connection) -> None:
    types = _TYPES[connection.dialect.name]
    for statement in (
        f"""
        CREATE TABLE webhooks (
            id {types["counted"]},
            name TEXT NOT NULL UNIQUE,
            url TEXT NOT NULL,
            "key" TEXT NOT NULL,
            format VARCHAR(32) NOT NULL,
            states TEXT NOT NULL,
            private BOOLEAN NOT NULL,
            creation_time {types["time"]} NOT NULL,
            error TEXT NOT NULL
        )
        """,
        f"""
        CREATE TABLE deliveries (
            id {types["counted"]},
            webhook_id {types["ref"]} NOT NULL REFERENCES webhooks (id),
            event TEXT NOT NULL,
            time {types["time"]} NOT NULL,
            attempts BIGINT NOT NULL,
            next_attempt {types["number"]} NOT NULL
        )
        """,
        "CREATE INDEX deliveries_of_webhook ON deliveries (webhook_id, id)",
        "CREATE INDEX experiments_by_state ON experiments (state)",
        "CREATE INDEX trials_by_state ON trials (state)",
    ):
        connection.execute(text(statement))


def _ends_and_costs_of_runs(connection: Connection) -> None:
    for column in (
        "exit_code BIGINT",
        "cause TEXT NOT NULL DEFAULT ''",
        "start_step BIGINT",
        "slots BIGINT",
        "placement TEXT NOT NULL DEFAULT ''",
    ):
        connection.execute(text(f"ALTER TABLE runs ADD COLUMN {column}"))


def _code_versions_and_machines(connection: Connection) -> None:
    types = _TYPES[connection.dialect.name]
    for statement in (
        f"""
        CREATE TABLE code_versions (
            experiment_id {types["ref"]} NOT NULL PRIMARY KEY REFERENCES experiments (id),
            "commit" TEXT NOT NULL,
            branch TEXT NOT NULL,
            tag TEXT NOT NULL,
            is_changed BOOLEAN,
            remote TEXT NOT NULL
        )
        """,
        f"""
        CREATE TABLE machines (
            trial_id {types["ref"]} NOT NULL REFERENCES trials (id),
            run_id BIGINT NOT NULL,
            node INTEGER NOT NULL,
            host TEXT NOT NULL,
            system TEXT NOT NULL,
            kernel TEXT NOT NULL,
            python TEXT NOT NULL,
            cpus BIGINT NOT NULL,
            cpu_model TEXT NOT NULL,
            memory BIGINT NOT NULL,
            gpus TEXT NOT NULL,
            packages TEXT NOT NULL,
            PRIMARY KEY (trial_id, run_id, node)
        )
        """,
    ):
        connection.execute(text(statement))


def _indexes_of_keys_and_of_times(connection: Connection) -> None:
    for name, columns in {
        "metrics_of_trial": "metrics (trial_id)",
        "trial_sources_of_trial": "trial_sources (trial_id)",
        "experiments_of_source": "experiments (forked_from)",
        "answered_calls_by_time": "answered_calls (time)",
    }.items():
        connection.execute(text(f"CREATE INDEX {name} ON {columns}"))


def _index_of_groups(connection: Connection) -> None:
    connection.execute(text("DROP INDEX metrics_of_trial"))
    connection.execute(text('CREATE INDEX metrics_of_trial ON metrics (trial_id, "group", run_id)'))


MIGRATIONS: list[Callable[[Connection], None]] = [
    _searcher_metadata_system_metrics_and_sources,
    _searches_and_models,
    _errors_of_checkpoints,
    _partial_indexes,
    _placements_and_interruptions,
    _total_batches,
    _answered_calls,
    _sizes_ends_of_runs_and_accounts,
    _parents_of_tokens,
    _webhooks_and_counts,
    _ends_and_costs_of_runs,
    _code_versions_and_machines,
    _indexes_of_keys_and_of_times,
    _index_of_groups,
]
"""Migrations in order. Entry n upgrades version n + 1 to version n + 2. Only append to this list.

New databases are created with the latest version."""
