"""Tracking store in an SQL database."""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING

from sqlalchemy import select

from det_core.interfaces.tracking import TrackingStore
from det_core.tracking._checkpoints import Checkpoints
from det_core.tracking._curves import Curves
from det_core.tracking._deletion import Deletion
from det_core.tracking._experiments import Experiments
from det_core.tracking._logs import Logs
from det_core.tracking._metrics import Metrics
from det_core.tracking._models import Models
from det_core.tracking._schema import schema, upgrade
from det_core.tracking._scores import Scores
from det_core.tracking._search import Search
from det_core.tracking._searcher import Searcher
from det_core.tracking._sources import Sources
from det_core.tracking._system_metrics import SystemMetricsPart
from det_core.tracking._trials import Trials

if TYPE_CHECKING:
    from det_core.tracking._database import Database


class SqlTrackingStore(
    Experiments,
    Deletion,
    Trials,
    Search,
    Searcher,
    Metrics,
    Scores,
    Curves,
    SystemMetricsPart,
    Sources,
    Checkpoints,
    Models,
    Logs,
    TrackingStore,
):
    """Tracking store in one SQL database. Open it with `det_core.tracking.open_store`.

    Args:
        database: the database, whose tables are created or upgraded.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.url = database.url
        try:
            database.retry(partial(upgrade, database))
        except BaseException:
            database.close()
            raise

    @cached_property
    def cluster_id(self) -> str:
        return self._database.retry(self._cluster_id)

    def _cluster_id(self) -> str:
        with self._database.read() as connection:
            return str(connection.execute(select(schema.c.cluster_id)).scalar_one())

    def close(self) -> None:
        self._database.close()
