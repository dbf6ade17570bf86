"""Requests of the search method to this trial."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any

from det_core.core._distributed import DistributedContext
from det_core.core._experiment_settings import ExperimentSettings
from det_core.core._metric_conversion import to_float
from det_core.core._train import TrainContext
from det_core.core.rank_agreement import all_ranks_group
from det_core.interfaces.records import Run
from det_core.interfaces.tracking import TrackingStore

if TYPE_CHECKING:
    from det_core.config import Length, Unit

_MISUSE = (RuntimeError, ValueError)
"""Errors that all workers raise if the chief does. They are sent as text, because other errors may not unpickle."""


class SearcherMode(str, Enum):
    """Rules on which workers may call `SearcherContext.operations`."""

    WorkersAskChief = "WORKERS_ASK_CHIEF"
    """All workers iterate in the same order. The chief reads the operations and sends them to the others."""
    ChiefOnly = "CHIEF_ONLY"
    """Only the chief may iterate. Your code informs the other workers."""


class SearcherOperation:
    """Request to train up to `length`, to validate, and to report the searcher's metric.

    `SearcherContext.operations` creates the operations.
    """

    def __init__(
        self,
        length: int,
        *,
        is_chief: bool,
        report_progress: Callable[[float], None],
        complete: Callable[[int, float], None],
    ) -> None:
        self._length = length
        self._is_chief = is_chief
        self._report_progress = report_progress
        self._complete = complete
        self._completed = False

    @property
    def length(self) -> int:
        """Return the total length of training since the start of the trial, > 0.

        It includes the lengths of previous operations. Its unit is that of ``searcher.max_length`` in the config.
        """
        return self._length

    def report_progress(self, length: float) -> None:
        """Report the progress of training.

        Args:
            length: length trained since the start of the trial, >= 0, in the unit of ``self.length``. More than
                ``self.length`` counts as all of it, and so does any length after `report_completed`.

        Raises:
            RuntimeError: this worker is not the chief.
            ValueError: ``length`` is negative or NaN.
        """
        self._require_chief("report_progress")
        if not length >= 0:
            raise ValueError(
                f"op.report_progress({length}): expected 0 to {self._length}, the operation's length; "
                "report the length trained since the start of the trial"
            )
        if not self._completed:
            self._report_progress(float(min(length, self._length)) / self._length)

    def report_completed(self, searcher_metric: Any) -> None:
        """Complete the operation by reporting the value of ``searcher.metric`` of the config.

        Everything reported before is in the tracking store when this method returns.

        Args:
            searcher_metric: a number, or a NumPy or torch scalar. NaN counts as the worst value.

        Raises:
            RuntimeError: this worker is not the chief, or the operation is already completed.
            TypeError: ``searcher_metric`` is not a number.
        """
        self._require_chief("report_completed")
        if self._completed:
            raise RuntimeError("op.report_completed() was called twice; get the next operation from operations()")
        try:
            metric = to_float(searcher_metric)
        except TypeError as error:
            raise TypeError(f"op.report_completed() takes the searcher.metric; its argument {error}") from error
        self._complete(self._length, metric)
        self._completed = True

    def _require_chief(self, method: str) -> None:
        if not self._is_chief:
            raise RuntimeError(f"only the chief (rank 0) may call op.{method}(); guard it: if distributed.rank == 0")


class SearcherContext:
    """Access to the operations that the search method requests from this trial.

    Metrics are reported separately, with `TrainContext`.

    Example::

        for op in core_context.searcher.operations():
            while batches < op.length:
                train_batch()
                batches += 1
            op.report_completed(validate()["accuracy"])
    """

    def __init__(
        self,
        store: TrackingStore,
        run: Run,
        distributed: DistributedContext,
        train: TrainContext,
        settings: ExperimentSettings,
    ) -> None:
        self._store = store
        self._run = run
        self._distributed = distributed
        self._train = train
        self._settings = settings
        self._is_chief = distributed.rank == 0

    def operations(
        self, searcher_mode: SearcherMode = SearcherMode.WorkersAskChief, auto_ack: bool = True
    ) -> Iterator[SearcherOperation]:
        """Iterate over the operations. The chief must complete each operation before the next one.

        A restarted trial begins with the operation that it has not completed.

        Args:
            searcher_mode: which workers may call this method.
            auto_ack: whether to call `acknowledge_out_of_ops` after the last operation.

        Raises:
            RuntimeError: the mode is ChiefOnly and this worker is not the chief. Raised during the iteration, on all
                workers, if the chief did not complete the previous operation.
            ValueError: the config has no ``searcher.max_length``. Raised during the iteration.
        """
        mode = SearcherMode(searcher_mode)
        if mode is SearcherMode.ChiefOnly and not self._is_chief:
            raise RuntimeError(
                f"rank {self._distributed.rank} called operations(), which SearcherMode.ChiefOnly reserves for rank 0; "
                "broadcast op.length from there, or use SearcherMode.WorkersAskChief"
            )
        return self._operations(mode, auto_ack)

    def acknowledge_out_of_ops(self) -> None:
        """Report to the runner that this process stops because there are no more operations for now.

        The runner may start the process again if the search method requests more. `operations` calls this method
        unless ``auto_ack`` is False.
        """
        operation = self._store.searcher_operation(self._run.trial_id)
        if operation is None or not operation.completed:  # a completed operation needs no acknowledgement
            self._store.acknowledge_preemption(self._run.trial_id, self._run.run_id)

    def get_configured_units(self) -> Unit | None:
        """Return the unit of ``searcher.max_length`` in the config. None if it is a bare number, or missing."""
        length = self._settings.max_length
        return length.unit if length else self._settings.parsed().searcher.unit

    def ordered(self) -> Length | None:
        """Return the length of the current operation. All workers must call this method, which is for frameworks.

        None if there is no operation. It has no unit if the config has none.
        """

        from det_core.config import Length

        def ask() -> Length | None:
            operation, unit = self._store.searcher_operation(self._run.trial_id), self.get_configured_units()
            return Length(operation.length, unit) if operation else None

        return all_ranks_group(self._distributed).by_chief(ask)

    def _operations(self, mode: SearcherMode, auto_ack: bool) -> Iterator[SearcherOperation]:
        operation: SearcherOperation | None = None
        while length := self._next_length(mode, operation):
            operation = SearcherOperation(
                length,
                is_chief=self._is_chief,
                report_progress=self._train.report_progress,
                complete=self._complete,
            )
            yield operation
        if auto_ack and self._is_chief:
            self.acknowledge_out_of_ops()

    def _next_length(self, mode: SearcherMode, previous: SearcherOperation | None) -> int | None:
        if mode is SearcherMode.ChiefOnly or self._distributed.size == 1:
            return self._ask(previous)

        def ask() -> int | tuple[type[Exception], str] | None:
            try:
                return self._ask(previous)
            except Exception as error:
                if type(error) not in _MISUSE:
                    raise
                return type(error), str(error)

        answer = all_ranks_group(self._distributed).by_chief(ask)
        if isinstance(answer, tuple):
            misuse, text = answer
            raise misuse(text)
        return answer

    def _ask(self, previous: SearcherOperation | None) -> int | None:
        """Return the length of the next operation, or None if all operations are completed.

        Raises:
            RuntimeError: the previous operation was not completed.
            ValueError: the config has no ``searcher.max_length``.
        """
        if previous and not previous._completed:
            raise RuntimeError(
                f"the operation of length {previous.length} was not completed; the chief must call "
                "op.report_completed(metric) on each operation before it asks for the next"
            )
        operation = self._store.searcher_operation(self._run.trial_id)
        if operation is None:
            raise ValueError(
                "there are no searcher operations, because the config's searcher has no max_length; "
                "add one, for example `max_length: {batches: 1000}`, or train without operations()"
            )
        return None if operation.completed else operation.length

    def _complete(self, length: int, metric: float) -> None:
        self._train.flush()  # the metrics must be visible before the operation is completed
        self._store.complete_searcher_operation(self._run.trial_id, self._run.run_id, length, metric)
