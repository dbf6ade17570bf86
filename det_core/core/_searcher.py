"""What the search method asks of this trial."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any

from det_core.core._distributed import DistributedContext
from det_core.core._settings import Settings
from det_core.core._together import everyone
from det_core.core._train import TrainContext
from det_core.core._values import number
from det_core.interfaces.tracking import Run, TrackingStore

if TYPE_CHECKING:
    from det_core.config import Length, Unit

_MISUSE = (RuntimeError, ValueError)
"""Errors that all workers raise when the chief does. They are sent as text, because others may not unpickle."""


class SearcherMode(str, Enum):
    """Who may call `SearcherContext.operations`."""

    WorkersAskChief = "WORKERS_ASK_CHIEF"
    """All workers iterate in step; the chief asks and tells the others."""
    ChiefOnly = "CHIEF_ONLY"
    """Only the chief may iterate; telling the others what to do is up to you."""


class SearcherOperation:
    """A request to train up to `length`, to validate, and to report the searcher's metric.

    Made by `SearcherContext.operations`.
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
        """How long to train in all, since the beginning of the trial and not since the operation before; > 0.

        Its unit is that of the config's ``searcher.max_length``.
        """
        return self._length

    def report_progress(self, length: float) -> None:
        """Report how far training has come, in the unit of `length`: 0 <= ``length`` <= ``self.length``.

        Raises:
            RuntimeError: not the chief, or the operation is completed.
            ValueError: out of range.
        """
        self._check("report_progress")
        if not 0 <= length <= self._length:
            raise ValueError(
                f"op.report_progress({length}): expected 0 to {self._length}, the operation's length; "
                "report what was trained since the beginning of the trial"
            )
        self._report_progress(float(length) / self._length)

    def report_completed(self, searcher_metric: Any) -> None:
        """Report the value of the config's ``searcher.metric``, which completes the operation.

        Everything reported before is in the record when this returns.

        Args:
            searcher_metric: a number, or a NumPy or torch scalar; NaN counts as the worst.

        Raises:
            RuntimeError: not the chief, or the operation is completed already.
            TypeError: ``searcher_metric`` is no number.
        """
        self._check("report_completed")
        try:
            metric = number(searcher_metric)
        except TypeError as error:
            raise TypeError(f"op.report_completed() takes the searcher.metric; what it got {error}") from error
        self._complete(self._length, metric)
        self._completed = True

    def _check(self, method: str) -> None:
        if not self._is_chief:
            raise RuntimeError(f"only the chief (rank 0) may call op.{method}(); guard it: if distributed.rank == 0")
        if self._completed:
            raise RuntimeError(f"op.{method}() came after op.report_completed(); ask operations() for the next one")


class SearcherContext:
    """Iterates over what the search method asks of this trial.

    Independent of it, metrics are reported with `TrainContext`.

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
        settings: Settings,
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
        """Iterate over the operations; the chief must complete each before asking for the next.

        A trial that is started again gets the operation that it has not completed.

        Args:
            searcher_mode: who may call this.
            auto_ack: call `acknowledge_out_of_ops` after the last operation.

        Raises:
            RuntimeError: a worker called it in ChiefOnly, or (on all workers, while iterating) the chief did
                not complete the operation before.
            ValueError: (while iterating) the config has no ``searcher.max_length``.
        """
        mode = SearcherMode(searcher_mode)
        if mode is SearcherMode.ChiefOnly and not self._is_chief:
            raise RuntimeError(
                f"rank {self._distributed.rank} called operations(), which SearcherMode.ChiefOnly leaves to rank 0; "
                "broadcast op.length from there, or use SearcherMode.WorkersAskChief"
            )
        return self._operations(mode, auto_ack)

    def acknowledge_out_of_ops(self) -> None:
        """Tell the runner that this process leaves because nothing is left to do for now.

        It may then start the process again if the search method asks for more. `operations` does it by itself.
        """
        operation = self._store.searcher_operation(self._run.trial_id)
        if operation is None or not operation.completed:  # a completed operation needs no acknowledgement
            self._store.acknowledge_preemption(self._run.trial_id, self._run.run_id)

    def get_configured_units(self) -> Unit | None:
        """The unit of the config's ``searcher.max_length``; None if it is a bare number, or missing."""
        return self._settings.parsed().searcher.unit

    def ordered(self) -> Length | None:
        """How long to train by the present operation, for frameworks; all workers call it in step.

        None: there is no operation, or it does not say in which unit.
        """

        from det_core.config import Length

        def ask() -> Length | None:
            operation, unit = self._store.searcher_operation(self._run.trial_id), self.get_configured_units()
            return Length(operation.length, unit) if operation and unit else None

        return everyone(self._distributed).by_chief(ask)

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

        answer = everyone(self._distributed).by_chief(ask)
        if isinstance(answer, tuple):
            misuse, text = answer
            raise misuse(text)
        return answer

    def _ask(self, previous: SearcherOperation | None) -> int | None:
        """The length to train to next; None when there is nothing left to do."""
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
        self._train.flush()  # whoever sees the operation completed also sees what led to it
        self._store.complete_searcher_operation(self._run.trial_id, self._run.run_id, length, metric)
