"""Tables of the tracking store, and their creation and upgrade."""

from __future__ import annotations

import uuid
from enum import Enum
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from det_core.errors import StoreCorrupt
from det_core.interfaces.account_records import Role, TokenKind, TokenScope
from det_core.interfaces.records import (
    LARGEST_EVENT,
    LARGEST_RECORD,
    LARGEST_SAMPLE,
    LARGEST_VALUE,
    CheckpointState,
    State,
)
from det_core.interfaces.webhook_records import WebhookFormat
from det_core.package_commands import package_command
from det_core.tracking._column_types import (
    Json,
    Labels,
    ListedJson,
    ListedText,
    MessageText,
    MetricsJson,
    NameText,
    PlainText,
    UtcTime,
)
from det_core.tracking._migrations import MIGRATIONS
from det_core.version import __version__

if TYPE_CHECKING:
    from det_core.tracking._database import Database

VERSION = 1 + len(MIGRATIONS)
"""Version of the tables of this release."""

tables = sa.MetaData()

_BIG = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # SQLite auto-increments columns of type INTEGER only


def _id() -> sa.Column[int]:
    return sa.Column("id", _BIG, primary_key=True)


def _ref(target: str) -> sa.Column[int]:
    return sa.Column(f"{target.removesuffix('s')}_id", _BIG, sa.ForeignKey(f"{target}.id"), nullable=False)


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, PlainText, nullable=False, default="")


def _short_text(name: str) -> sa.Column[str]:
    return sa.Column(name, NameText, nullable=False, default="")


def _message(name: str) -> sa.Column[str]:
    return sa.Column(name, MessageText, nullable=False, default="")


def _flag(name: str) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean, nullable=False, default=False)


def _count(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False, default=0)


def _json(name: str) -> sa.Column[Any]:
    return sa.Column(name, Json, nullable=False, default=dict)


def _record_json(name: str) -> sa.Column[Any]:
    return sa.Column(name, ListedJson(LARGEST_RECORD), nullable=False, default=dict)


def _listed_text(name: str) -> sa.Column[str]:
    return sa.Column(name, ListedText, nullable=False, default="")


def _listed_json(name: str) -> sa.Column[Any]:
    return sa.Column(name, ListedJson(LARGEST_VALUE), nullable=False, default=dict)


def _labels() -> sa.Column[Any]:
    return sa.Column("labels", Labels, nullable=False, default=list)


def _enum(name: str, kind: type[Enum]) -> sa.Column[Any]:
    return sa.Column(name, sa.Enum(kind, native_enum=False, length=32), nullable=False)


schema = sa.Table(
    "det_schema",
    tables,
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("release", PlainText, nullable=False),
    sa.Column("cluster_id", PlainText, nullable=False),
)

experiments = sa.Table(
    "experiments",
    tables,
    _id(),
    _enum("state", State),
    _listed_text("name"),
    _listed_text("description"),
    _listed_text("notes"),
    _listed_text("owner"),
    _listed_text("job_id"),
    _listed_json("config"),
    _listed_text("original_config"),
    _labels(),
    sa.Column("progress", sa.Double, nullable=False, default=0.0),
    sa.Column("error", MessageText),
    _flag("unmanaged"),
    _flag("archived"),
    sa.Column("external_id", ListedText, unique=True),
    sa.Column("forked_from", _BIG, sa.ForeignKey("experiments.id")),
    sa.Column("start_time", UtcTime, nullable=False),
    sa.Column("end_time", UtcTime),
    sa.Column("lease_holder", ListedText),
    sa.Column("lease_expires", sa.Double),
    sa.Column("model_definition", sa.LargeBinary, nullable=False),  # last, as SQLite reads it to reach later columns
    sqlite_autoincrement=True,
)

trials = sa.Table(
    "trials",
    tables,
    _id(),
    _ref("experiments"),
    _count("request_id"),
    _enum("state", State),
    _listed_json("hparams"),
    _count("seed"),
    _count("run_id"),
    _count("restarts"),
    _count("interruptions"),
    _count("steps_completed"),
    _message("runner_state"),
    _message("placement"),
    _listed_json("metadata"),
    sa.Column("searcher_length", sa.BigInteger),
    sa.Column("searcher_completed", sa.BigInteger),
    sa.Column("searcher_metric", MetricsJson),
    sa.Column("total_batches", sa.BigInteger),
    sa.Column("progress", sa.Double, nullable=False, default=0.0),
    sa.Column("ordered", sa.BigInteger),
    sa.Column("source_checkpoint", PlainText),
    sa.Column("task_id", PlainText, nullable=False, unique=True),
    sa.Column("external_id", ListedText),
    sa.Column("start_time", UtcTime, nullable=False),
    sa.Column("end_time", UtcTime),
    sa.UniqueConstraint("experiment_id", "external_id"),
    sqlite_autoincrement=True,
)

runs = sa.Table(
    "runs",
    tables,
    sa.Column("trial_id", _BIG, sa.ForeignKey("trials.id"), primary_key=True),
    sa.Column("run_id", sa.BigInteger, primary_key=True, autoincrement=False),
    _listed_text("allocation_id"),
    _flag("preemption_acknowledged"),
    sa.Column("early_exit", MessageText),
    sa.Column("start_time", UtcTime, nullable=False),
    sa.Column("end_time", UtcTime),
    _message("end_reason"),
    sa.Column("exit_code", sa.BigInteger),
    _message("cause"),
    sa.Column("start_step", sa.BigInteger),
    sa.Column("slots", sa.BigInteger),
    _message("placement"),
)

code_versions = sa.Table(  # not columns of experiments, which SQLite would read behind their code
    "code_versions",
    tables,
    sa.Column("experiment_id", _BIG, sa.ForeignKey("experiments.id"), primary_key=True, autoincrement=False),
    _short_text("commit"),
    _short_text("branch"),
    _short_text("tag"),
    sa.Column("is_changed", sa.Boolean),
    _short_text("remote"),
)

machines = sa.Table(
    "machines",
    tables,
    sa.Column("trial_id", _BIG, sa.ForeignKey("trials.id"), primary_key=True, autoincrement=False),
    sa.Column("run_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("node", sa.Integer, primary_key=True, autoincrement=False),
    _short_text("host"),
    _short_text("system"),
    _short_text("kernel"),
    _short_text("python"),
    _count("cpus"),
    _short_text("cpu_model"),
    _count("memory"),
    sa.Column("gpus", Json(LARGEST_SAMPLE), nullable=False),
    sa.Column("packages", Json(LARGEST_SAMPLE), nullable=False),
)

metrics = sa.Table(
    "metrics",
    tables,
    _id(),
    _ref("trials"),
    _count("run_id"),
    _count("steps_completed"),
    _short_text("group"),
    sa.Column("metrics", MetricsJson(LARGEST_RECORD), nullable=False),
    sa.Column("batch_metrics", MetricsJson(LARGEST_EVENT)),
    sa.Column("time", UtcTime, nullable=False),
    _flag("archived"),
    sa.Column("searcher_metric", sa.Double),  # of validations only, NULL unless finite
)

system_metrics = sa.Table(
    "system_metrics",
    tables,
    _id(),
    _ref("trials"),
    _count("run_id"),
    _short_text("group"),
    sa.Column("metrics", MetricsJson(LARGEST_SAMPLE), nullable=False),
    sa.Column("time", UtcTime, nullable=False),
)

trial_sources = sa.Table(
    "trial_sources",
    tables,
    sa.Column("checkpoint_uuid", NameText, primary_key=True),
    sa.Column("trial_id", _BIG, sa.ForeignKey("trials.id"), primary_key=True),
    sa.Column("model_id", sa.BigInteger),
    sa.Column("model_version", sa.BigInteger),
)

live = metrics.c.archived == sa.false()
archived = metrics.c.archived == sa.true()

# The conditions are set for SQLite only. `_postgresql` copies them, because naming them here would import its dialect.
_BY_STEP = (metrics.c.trial_id, metrics.c.steps_completed, metrics.c.group)
sa.Index("metrics_live", *_BY_STEP, unique=True, sqlite_where=live)
sa.Index("metrics_archived", *_BY_STEP, sqlite_where=archived)

scored = sa.and_(live, metrics.c.searcher_metric.is_not(None))
for _name, _column in (("value", metrics.c.searcher_metric), ("step", metrics.c.steps_completed)):
    sa.Index(f"metrics_scored_by_{_name}", metrics.c.trial_id, _column, sqlite_where=scored)

checkpoints = sa.Table(
    "checkpoints",
    tables,
    _id(),
    sa.Column("uuid", PlainText, nullable=False, unique=True),
    _ref("trials"),
    _count("run_id"),
    _enum("state", CheckpointState),
    sa.Column("steps_completed", sa.BigInteger),
    _record_json("storage"),
    _record_json("resources"),
    _record_json("metadata"),
    sa.Column("time", UtcTime, nullable=False),
    sa.Column("error", MessageText),
    _count("size"),  # of all resources in bytes
)

logs = sa.Table(
    "logs",
    tables,
    _id(),
    _ref("trials"),
    _count("run_id"),
    sa.Column("rank", sa.Integer, nullable=False),
    _text("stdtype"),
    sa.Column("level", PlainText, nullable=False, default="INFO"),
    _text("log"),
    sa.Column("time", UtcTime, nullable=False),
)

answered_calls = sa.Table(
    "answered_calls",
    tables,
    sa.Column("lane", PlainText, primary_key=True),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("answer", sa.LargeBinary, nullable=False),
    sa.Column("time", UtcTime, nullable=False),
)

search_events = sa.Table(
    "search_events",
    tables,
    sa.Column("experiment_id", _BIG, sa.ForeignKey("experiments.id"), primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("event", Json(LARGEST_EVENT), nullable=False, default=dict),
    sa.Column("actions", Json(LARGEST_EVENT), nullable=False, default=dict),
)

search_snapshots = sa.Table(
    "search_snapshots",
    tables,
    sa.Column("experiment_id", _BIG, sa.ForeignKey("experiments.id"), primary_key=True),
    sa.Column("number", sa.BigInteger, nullable=False),
    _json("state"),
)

models = sa.Table(
    "models",
    tables,
    _id(),
    sa.Column("name", ListedText, nullable=False, unique=True),
    _listed_text("description"),
    _listed_text("notes"),
    _text("owner"),
    _listed_json("metadata"),
    _labels(),
    _flag("archived"),
    _count("last_version"),
    sa.Column("creation_time", UtcTime, nullable=False),
    sa.Column("last_updated_time", UtcTime, nullable=False),
    sqlite_autoincrement=True,
)

model_versions = sa.Table(
    "model_versions",
    tables,
    _id(),
    _ref("models"),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("checkpoint_uuid", PlainText, sa.ForeignKey("checkpoints.uuid"), nullable=False),
    _listed_text("name"),
    _listed_text("comment"),
    _listed_text("notes"),
    _text("owner"),
    _listed_json("metadata"),
    _labels(),
    sa.Column("creation_time", UtcTime, nullable=False),
    sa.Column("last_updated_time", UtcTime, nullable=False),
    sa.UniqueConstraint("model_id", "version"),
    sqlite_autoincrement=True,
)

users = sa.Table(
    "users",
    tables,
    _id(),
    sa.Column("name", PlainText, nullable=False, unique=True),
    _enum("role", Role),
    _text("password"),
    sa.Column("active", sa.Boolean, nullable=False),
    sa.Column("creation_time", UtcTime, nullable=False),
    sqlite_autoincrement=True,
)

access_tokens = sa.Table(
    "access_tokens",
    tables,
    _id(),
    sa.Column("digest", PlainText, nullable=False, unique=True),
    sa.Column("user_id", _BIG, sa.ForeignKey("users.id")),
    _enum("kind", TokenKind),
    _enum("scope", TokenScope),
    _text("label"),
    sa.Column("trial_id", sa.BigInteger),
    sa.Column("run_id", sa.BigInteger),
    sa.Column("creation_time", UtcTime, nullable=False),
    sa.Column("expires", UtcTime),
    sa.Column("parent_id", sa.BigInteger),  # the parent may be deleted, which ends the token
    sqlite_autoincrement=True,
)

webhooks = sa.Table(
    "webhooks",
    tables,
    _id(),
    sa.Column("name", PlainText, nullable=False, unique=True),
    _text("url"),
    _text("key"),
    _enum("format", WebhookFormat),
    _json("states"),
    _flag("private"),
    sa.Column("creation_time", UtcTime, nullable=False),
    _message("error"),
    sqlite_autoincrement=True,
)

deliveries = sa.Table(
    "deliveries",
    tables,
    _id(),
    _ref("webhooks"),
    _json("event"),
    sa.Column("time", UtcTime, nullable=False),
    _count("attempts"),
    sa.Column("next_attempt", sa.Double, nullable=False),
    sqlite_autoincrement=True,
)

actions = sa.Table(
    "actions",
    tables,
    _id(),
    sa.Column("time", UtcTime, nullable=False),
    _text("user"),
    _text("action"),
    _text("target"),
    _text("address"),
    sqlite_autoincrement=True,
)

# A database reads the whole table for each deleted record that a key without an index of all rows may refer to.
sa.Index("metrics_of_trial", metrics.c.trial_id, metrics.c.group, metrics.c.run_id)
sa.Index("trial_sources_of_trial", trial_sources.c.trial_id)
sa.Index("experiments_of_source", experiments.c.forked_from)
sa.Index("model_versions_of_checkpoint", model_versions.c.checkpoint_uuid)
sa.Index("experiments_by_state", experiments.c.state)
sa.Index("trials_by_state", trials.c.state)
sa.Index("trials_of_request", trials.c.experiment_id, trials.c.request_id)
sa.Index("checkpoints_of_trial", checkpoints.c.trial_id, checkpoints.c.state, checkpoints.c.size)
sa.Index("access_tokens_of_user", access_tokens.c.user_id)
sa.Index("access_tokens_by_expiry", access_tokens.c.expires)
sa.Index("deliveries_of_webhook", deliveries.c.webhook_id, deliveries.c.id)
sa.Index("answered_calls_by_time", answered_calls.c.time)
sa.Index("logs_of_trial", logs.c.trial_id, logs.c.id)
sa.Index("system_metrics_of_trial", system_metrics.c.trial_id, system_metrics.c.id)


def upgrade_tables(database: Database) -> None:
    """Create the tables, or upgrade them to this release.

    Raises:
        StoreCorrupt: a newer release wrote the database. The error names the release to install.
    """
    with database.read() as connection:
        version = _version(connection)
    if version != VERSION:
        with database.write(alone=True) as connection:
            _upgrade(connection, _version(connection))  # read again, as another process may have upgraded it


def _version(connection: sa.Connection) -> int:
    """Return the version of the tables, or 0 if there are none."""
    if not sa.inspect(connection).has_table(schema.name):
        return 0
    version, release = connection.execute(sa.select(schema.c.version, schema.c.release)).one()
    if version > VERSION:
        raise StoreCorrupt(
            f"{connection.engine.url!r} was written by det-core {release}, which is newer than this {__version__}: "
            f"{package_command('install', f'det-core>={release}')}"
        )
    return int(version)


def _upgrade(connection: sa.Connection, version: int) -> None:
    if version == 0:
        tables.create_all(connection, checkfirst=False)
        values = {"version": VERSION, "release": __version__, "cluster_id": uuid.uuid4().hex}
        connection.execute(schema.insert().values(values))
        return
    for migrate in MIGRATIONS[version - 1 :]:
        migrate(connection)
    connection.execute(schema.update().values(version=VERSION, release=__version__))
