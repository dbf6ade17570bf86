"""Tracking store in an SQL database."""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import select

from det_core.interfaces.server_store import ServerStore
from det_core.tracking._accounts import AccountsMixin
from det_core.tracking._answered_calls import execute_call
from det_core.tracking._audit_log import AuditLogMixin
from det_core.tracking._change_feed import ChangesMixin
from det_core.tracking._checkpoints import CheckpointsMixin
from det_core.tracking._curves import CurvesMixin
from det_core.tracking._divergences import DivergencesMixin
from det_core.tracking._experiment_deletion import ExperimentDeletionMixin
from det_core.tracking._experiment_groups import ExperimentGroupsMixin
from det_core.tracking._experiment_summaries import ExperimentSummariesMixin
from det_core.tracking._logs import LogsMixin
from det_core.tracking._metric_names import MetricNamesMixin
from det_core.tracking._metric_values import MetricValuesMixin
from det_core.tracking._metrics import MetricsMixin
from det_core.tracking._model_registry import ModelRegistryMixin
from det_core.tracking._schema import schema, upgrade_tables
from det_core.tracking._scores import ScoresMixin
from det_core.tracking._search_events import SearchEventsMixin
from det_core.tracking._trials import TrialsMixin
from det_core.tracking._webhooks import WebhooksMixin

if TYPE_CHECKING:
    from collections.abc import Callable

    from det_core.interfaces.server_store import Change
    from det_core.tracking._database import Database

T = TypeVar("T")


class SqlTrackingStore(
    ExperimentGroupsMixin,
    ExperimentDeletionMixin,
    ExperimentSummariesMixin,
    TrialsMixin,
    SearchEventsMixin,
    MetricsMixin,
    MetricNamesMixin,
    MetricValuesMixin,
    ScoresMixin,
    CurvesMixin,
    DivergencesMixin,
    CheckpointsMixin,
    ModelRegistryMixin,
    LogsMixin,
    ChangesMixin,
    AccountsMixin,
    AuditLogMixin,
    WebhooksMixin,
    ServerStore,
):
    """Tracking store in one SQL database. Open it with `det_core.tracking.open_store`.

    Args:
        database: the database, whose tables are created or upgraded.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.url = database.url
        try:
            database.retry(partial(upgrade_tables, database))
        except BaseException:
            database.close()
            raise

    @cached_property
    def cluster_id(self) -> str:
        return self._database.retry(self._cluster_id)

    def _cluster_id(self) -> str:
        with self._database.read() as connection:
            return str(connection.execute(select(schema.c.cluster_id)).scalar_one())

    def execute(self, call: Callable[[Change], T], *, call_id: str | None = None) -> T:
        return execute_call(self._database, call, call_id)

    def close(self) -> None:
        self._database.close()
