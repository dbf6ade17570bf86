"""Rehearsal of validation and storage before the first batch of a trial, which finds in seconds what fails later."""

from __future__ import annotations

import logging
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TypeVar

from det_core.core import CheckpointContext
from det_core.core.rank_agreement import RankGroup
from det_core.errors import CommError, InvalidExperimentException, InvalidTrial
from det_core.interfaces.framework import Metrics, TrialAdapter
from det_core.scratch import scratch_directory
from det_core.trial._training_plan import TrainingPlan

SECONDS = 60.0
"""Time limit of a rehearsal. Training starts after it, whatever is not proved by then."""
LARGEST_STATE = 1 << 30
"""Size in bytes of the largest initial state that is stored. A probe stands for larger and for sharded ones."""
_PROBE = bytes(1 << 20)

_T = TypeVar("_T")
_log = logging.getLogger("det.trial")


class TookTooLong(BaseException):
    """The time limit has passed. It is no Exception, so that the trial's code does not catch it."""


def rehearse_trial(adapter: TrialAdapter, checkpoint: CheckpointContext, ranks: RankGroup, plan: TrainingPlan) -> None:
    """Store a checkpoint of the initial state and remove it, and evaluate one batch without a trace.

    What else goes wrong is one warning, because it may concern this batch only.

    Args:
        adapter: this worker's adapter of the framework.
        checkpoint: core context to store checkpoints with.
        ranks: all workers that train the trial.
        plan: the plan, with the metric that the evaluation must return. Without an evaluation if it begins with one.

    Raises:
        InvalidTrial: the evaluation does not return the metric.
        InvalidExperimentException: a checkpoint cannot be stored, read or removed, or there is too little space.
    """
    end = time.monotonic() + SECONDS
    storing = _begin_storing(adapter, checkpoint) if ranks.is_chief else None
    metrics = None if plan.initial_validation else _evaluate_batch(adapter, ranks, end)
    if storing:
        wait([storing], max(end - time.monotonic(), 0))

    def conclude() -> None:
        assert storing
        if not storing.done():
            _log.warning("the rehearsal has not stored a checkpoint within %.0f s; training starts", SECONDS)
        elif error := storing.exception():
            raise InvalidExperimentException(
                f"the rehearsal before the first batch could not store a checkpoint: {error}"
            ) from error
        if metrics is not None and plan.metric is not None and plan.metric not in metrics:
            from det_core.metric_directions import suggest_metric

            names = ", ".join(map(repr, metrics))
            raise InvalidTrial(
                f"searcher.metric is {plan.metric!r}, but the validation metrics are {names}; change it in the config, "
                "or return one of this name from the trial's evaluation (rehearsal: false trains without this check)"
                f"{suggest_metric(plan.metric, metrics, smaller_is_better=plan.smaller_is_better)}"
            )

    ranks.by_chief(conclude)


def _begin_storing(adapter: TrialAdapter, checkpoint: CheckpointContext) -> Future[None]:
    """Write the initial state, and store and remove it in the background."""
    with ExitStack() as ending:
        directory = ending.enter_context(scratch_directory("rehearsal"))
        needed = _write_state(adapter, directory)
        scratch = ending.pop_all()
    stored: Future[None] = Future()

    def store() -> None:
        try:
            with scratch:
                checkpoint._rehearse(directory, needed)
        except BaseException as error:  # noqa: BLE001  (raised by the thread that waits)
            stored.set_exception(error)
        else:
            stored.set_result(None)

    # Not a pool, whose thread the process would wait for at its end.
    threading.Thread(target=store, name="det-rehearsal", daemon=True).start()
    return stored


def _write_state(adapter: TrialAdapter, directory: Path) -> int:
    """Write the initial state or a probe, and return the estimated size of a checkpoint in bytes."""
    size = 0
    try:
        size = adapter.write_initial_state(directory, most=0 if adapter.sharded else LARGEST_STATE)
    except Exception as error:  # noqa: BLE001  (only errors of the storage end the run)
        _warn("write a checkpoint", error)
    if not any(directory.iterdir()):
        (directory / "probe").write_bytes(_PROBE)
    return size


def _evaluate_batch(adapter: TrialAdapter, ranks: RankGroup, end: float) -> Metrics | None:
    # The models of sharded adapters wait for those of other workers, which an interruption would leave alone.
    limit = nullcontext if adapter.sharded else _time_limit

    def together(work: Callable[[], _T]) -> list[_T]:
        def limited() -> _T:
            with limit(end - time.monotonic()):
                return work()

        return ranks.together(limited)

    try:
        return adapter.rehearse(together)
    except CommError:
        raise
    except (Exception, TookTooLong) as error:  # noqa: BLE001  (only a missing metric ends the run)
        if ranks.is_chief:
            _warn("evaluate a batch", error)
        return None


def _warn(what: str, error: BaseException) -> None:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    _log.warning(
        "the rehearsal before the first batch could not %s, and training starts anyway: %s: %s (%s:%d)",
        what,
        type(error).__name__,
        str(error).partition("\n")[0],
        frames[-1].filename,
        frames[-1].lineno,
    )


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise TookTooLong in the block after a time, at the next line of Python. Other threads than the main one cannot.

    Args:
        seconds: the time. If it is not positive, it has passed.
    """

    def interrupt(*_: object) -> None:
        raise TookTooLong(f"it took longer than {SECONDS:.0f} s")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGALRM, interrupt)
    timer = signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler or signal.SIG_DFL)
