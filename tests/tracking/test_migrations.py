"""Databases that older releases wrote. The files ``version_1/*.sql`` are dumps of databases of version 1."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from det_core.interfaces.account_records import Role, TokenKind, TokenScope
from det_core.interfaces.records import CheckpointState, CodeVersion, Machine, State
from det_core.interfaces.server_store import Action
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import _schema, open_store
from det_core.tracking._scores import best_of_trials


@pytest.fixture(autouse=True)
def _quick_records() -> None:
    """Create each database from nothing."""


@pytest.fixture
def old(url: str) -> str:
    """Return the URL of a database of version 1."""
    parsed = sa.make_url(url)
    script = (Path(__file__).parent / "version_1" / f"{parsed.get_backend_name()}.sql").read_text()
    if parsed.get_backend_name() == "sqlite":
        connection: Any = sqlite3.connect(str(parsed.database))
        connection.executescript(script)
    else:
        import psycopg

        connection = psycopg.connect(host=parsed.query["host"], user="postgres", dbname=parsed.database)
        connection.execute(script)
        connection.commit()
    connection.close()
    return url


def test_all_data_of_version_1_are_kept(old: str) -> None:
    with open_store(old) as store:
        (experiment,) = store.experiments()
        (trial,) = store.trials(experiment.id)
        assert (experiment.name, experiment.owner, experiment.labels) == ("old", "ada", ["é"])
        assert store.model_definition(experiment.id) == b"\0tar"
        assert (trial.state, trial.hparams, trial.steps_completed) == (State.COMPLETED, {"lr": 0.1}, 5)
        (report,) = store.metrics(trial.id)
        assert repr(report.metrics) == "{'loss': 0.5, 'worst': nan}"
        assert store.checkpoint("c").state is CheckpointState.COMPLETED
        assert [line.log for line in store.logs(trial.id)] == ["hello"]


def test_additions_of_version_2_are_usable(old: str) -> None:
    with open_store(old) as store:
        assert store.trial(1).metadata == {}
        assert store.searcher_operation(1) is None
        assert store.system_metrics(1) == []
        store.set_trial_metadata(1, 1, {"a": 1})
        store.set_searcher_operation(1, 5)
        assert store.create_trial(1, hparams={}, seed=0).metadata == {}
    with open_store(old) as again:
        assert again.trial(1).metadata == {"a": 1}


def test_additions_of_version_9_are_usable(old: str) -> None:
    with open_store(old) as store:
        summary = store.experiment_summaries([1])[1]
        assert (summary.trials, summary.checkpoints, summary.checkpoint_bytes) == (1, 1, 1)
        (run,) = store.runs(1)
        assert (run.start_time is None, run.end_reason) == (False, "")
        store.end_run(1, 1, reason="r")
        store.create_user("ada", role=Role.ADMIN, password="")
        token = store.add_access_token("0" * 64, user="ada", kind=TokenKind.API, scope=TokenScope.READ)
        store.record_action(Action("ada", "pause", "experiment 1"))
    with open_store(old) as again:
        assert again.run(1, 1).end_reason == "r"
        assert again.access_tokens() == [token]
        assert [action.user for action in again.actions()] == ["ada"]


def test_additions_of_version_12_are_usable(old: str) -> None:
    with open_store(old) as store:
        assert (store.code_versions([1]), store.machines(1), store.newest_machines([1])) == ({}, {}, {})
        commit = CodeVersion(commit="a" * 40)
        store.record_machine(1, 1, Machine(host="n1"))
        assert store.machines(1) == {1: [Machine(host="n1", gpus=[])]}
        assert store.code_versions([store.create_experiment(config={}, code_version=commit).id]) == {2: commit}


def shape(store: TrackingStore) -> dict[str, Any]:
    """Return the columns, indexes and keys of all tables, as the database reports them."""
    with store._database.read() as connection:  # type: ignore[attr-defined]
        inspector = sa.inspect(connection)
        return {
            table: (
                {column["name"]: (str(column["type"]), column["nullable"]) for column in inspector.get_columns(table)},
                sorted((index["name"] or "", index["column_names"]) for index in inspector.get_indexes(table)),
                sorted(key["constrained_columns"] for key in inspector.get_foreign_keys(table)),
                inspector.get_pk_constraint(table)["constrained_columns"],
            )
            for table in inspector.get_table_names()
        }


def test_an_upgraded_database_has_the_same_tables_as_a_new_one(old: str) -> None:
    with open_store(old) as upgraded:
        found = shape(upgraded)
        with upgraded._database.write() as connection:  # type: ignore[attr-defined]
            for table in reversed(_schema.tables.sorted_tables):
                table.drop(connection)
            _schema.tables.create_all(connection)
        assert found == shape(upgraded)


def test_the_best_values_of_an_upgraded_database_are_read_from_their_index(old: str) -> None:
    """SQLite does not use an index with the condition `archived = false` for a query with `archived = 0`."""
    if not old.startswith("sqlite"):
        pytest.skip("PostgreSQL equates the conditions, and reads a table of one row without an index")
    with open_store(old) as store, store._database.read() as connection:  # type: ignore[attr-defined]
        best = best_of_trials(_schema.trials.c.experiment_id == 1, smaller_is_better=True)
        query = best.compile(connection, compile_kwargs={"literal_binds": True})
        plan = [row[-1] for row in connection.execute(sa.text(f"EXPLAIN QUERY PLAN {query}"))]
        assert any("INDEX metrics_scored_by_value" in step for step in plan), plan


@pytest.mark.parametrize("table", [table for table in _schema.tables.sorted_tables if table.foreign_keys], ids=str)
def test_foreign_keys_have_an_index_of_all_rows(table: sa.Table) -> None:
    """Without one, the database reads the whole table for each record that is deleted."""
    full = [index for index in table.indexes if index.dialect_options["sqlite"]["where"] is None]
    unique = (key for key in table.constraints if isinstance(key, (sa.PrimaryKeyConstraint, sa.UniqueConstraint)))
    first = {next(iter(index.columns)) for index in (*full, *unique)}
    assert {key.parent for key in table.foreign_keys} <= first
