"""Interface of the tracking store, which records experiments, trials, metrics, checkpoints and logs."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from det_core.interfaces.records import Changes
from det_core.interfaces.tracking._accounts import AccountStore
from det_core.interfaces.tracking._checkpoints import CheckpointStore
from det_core.interfaces.tracking._experiments import ExperimentStore, SearchEventStore
from det_core.interfaces.tracking._model_registry import ModelRegistry
from det_core.interfaces.tracking._reports import LogStore, MetricsStore
from det_core.interfaces.tracking._rights import Reach as Reach
from det_core.interfaces.tracking._rights import Rights as Rights
from det_core.interfaces.tracking._rights import reads
from det_core.interfaces.tracking._trials import TrialStore

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["TrackingStore"]


class TrackingStore(
    ExperimentStore,
    SearchEventStore,
    TrialStore,
    MetricsStore,
    CheckpointStore,
    ModelRegistry,
    LogStore,
    AccountStore,
):
    """Record of everything that happened in experiments, with the rules that keep it consistent.

    All methods are safe to call from several threads and processes, and after a fork.

    A ``lease`` argument is a holder as in `acquire_lease`. It makes the write fail if another runner has taken the
    experiment. Nothing is checked if it is empty.

    Raises:
        RecordNotFound: an id is unknown.
        StaleRun: the write belongs to a run, or has the ``lease`` of a runner, that was replaced.
        TypeError: a value is not JSON-compatible.
        StoreBusy: the database is locked or unavailable for too long.
        StoreCorrupt: the database is damaged.
        TrackingError: the store cannot do it for another reason.
    """

    url: str
    """Argument with which `det_core.tracking.open_store` opens the same store in another process."""

    @property
    @reads
    @abstractmethod
    def cluster_id(self) -> str:
        """Unique id of this store, 32 hexadecimal digits."""

    @reads
    @abstractmethod
    def changes(self, after: str = "") -> Changes:
        """Return what was added since another call, at a cost that depends only on what was added.

        Changes of existing records, such as states, are not found, except for reports that were merged into others. A
        call finds at most 10,000 rows of each kind, so a caller that was away for long needs several calls. Each row is
        found by one call, whatever other transactions were in progress. While there are some, the cost is that of all
        rows since the oldest of them began. After a deletion of the last rows, a call also finds some older ones.

        Args:
            after: cursor that an earlier call on the same store returned. Empty to get the present cursor and no
                changes.

        Raises:
            ValueError: ``after`` is not such a cursor.
            CallTooLarge: reading the rows since the oldest transaction takes too long.
        """

    @abstractmethod
    def close(self) -> None:
        """Release connections. The store must not be used afterwards."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
