"""Entry point of workers, ``python -m det_core.launch.worker [MODULE:CLASS]``, run in the context directory."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from det_core import LOG_FORMAT, core
from det_core.core import failure_notes
from det_core.errors import (
    CommError,
    ConfigError,
    InvalidExperimentException,
    InvalidTrial,
    PeerLate,
    PeerLost,
    PluginError,
)
from det_core.interfaces.records import native_command
from det_core.launch import backends
from det_core.owner_process import OwnerProcess
from det_core.plugins import plugin_registry
from det_core.trial import framework_of, load_trial_class

_HOPELESS = (ConfigError, InvalidExperimentException, InvalidTrial, PluginError)
"""Errors that every restart would meet again."""
_ROLL_CALL_SECONDS = 5.0
"""Time limit of the roll call of `name_stuck_workers`. A failed collective ends on all healthy workers almost at the
same time."""


def main(entrypoint: str | None = None) -> int:
    """Train the trial that the cluster info describes, and return the exit code of this process.

    Args:
        entrypoint: the trial class as MODULE:CLASS. It must be given if the config's entrypoint is a command.
    """
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    rank, owner = None, OwnerProcess()
    context: core.Context | None = None

    def leave_note(code: int, error: str) -> None:
        if owner.is_here:  # the end of a forked child is not that of the worker
            failure_notes.write_failure_note(rank, code, error)

    try:
        try:
            distributed = backends.connect_workers() if backends.BACKEND_VARIABLE in os.environ else None
        except CommError:
            return 1  # the process that started the workers prints the reason
        rank = distributed.rank if distributed else None
        if rank:
            logging.getLogger("det").setLevel(logging.WARNING)  # the chief logs for all workers
        with failure_notes.mark_worker_present(rank or 0), core.init(distributed=distributed) as context:
            _train(context, entrypoint, distributed)
    except _HOPELESS as error:
        from det_core.interfaces.launcher import EXIT_DO_NOT_RESTART  # takes 8 ms, and few workers need it

        print(error, file=sys.stderr)  # noqa: T201
        leave_note(EXIT_DO_NOT_RESTART, str(error))
        return EXIT_DO_NOT_RESTART
    except SystemExit as stop:
        if stop.code:
            leave_note(1, f"it exited with {stop.code!r}")
        raise
    except Exception:
        if owner.is_here:
            failure_notes.report_uncaught_error(rank, context.train._batches_trained if context else None)
        raise
    return 0


def _train(context: core.Context, entrypoint: str | None, distributed: core.DistributedContext | None) -> None:
    """Load the trial class and let its framework train it.

    Args:
        context: the core context.
        entrypoint: as for `main`.
        distributed: connection to the other workers, or None if no backend has started this one.
    """
    config = context._settings.dumped
    if config["debug"]:
        logging.getLogger().setLevel(logging.DEBUG)
    if config["profiling"]["enabled"]:
        context.profiler.on()
    timeout = backends.distributed_block().get("timeout") if distributed else None
    trial_class = load_trial_class(entrypoint or str(config["entrypoint"]), native_command(config["internal"]))
    framework = framework_of(trial_class)
    backend = os.environ.get(backends.BACKEND_VARIABLE)
    backends.check_slots(framework, context.distributed.size, backend)
    if config["resources"]["min_slots_per_trial"]:
        backends.check_elastic(framework, backend)
    with refused_exits(), name_stuck_workers(distributed, timeout):
        plugin_registry().call_target(framework, trial_class, context)


@contextmanager
def refused_exits() -> Iterator[None]:
    """Raise InvalidTrial if code within the block ends this process as if everything was done."""
    owner = OwnerProcess()
    try:
        yield
    except SystemExit as stop:
        if stop.code or not owner.is_here:
            raise
        raise InvalidTrial(
            "the code of the trial called sys.exit() during training, which looks like its end; to end early, call "
            "context.set_stop_requested(True)"
        ) from stop


@contextmanager
def name_stuck_workers(workers: core.DistributedContext | None, timeout: float | None) -> Iterator[None]:
    """Hold a roll call after a `PeerLost` that names no worker, and name the worker that does not answer.

    All workers must enter the context in the same order.

    Args:
        workers: all workers, or None if there is only one, in which case nothing is done.
        timeout: seconds after which the framework's collectives fail, or None if they never do, in which case nothing
            is done.

    Raises:
        PeerLate: a collective failed because of the worker that this error names.
    """
    if workers is None or timeout is None:
        yield
        return
    channel = workers._channel(_ROLL_CALL_SECONDS)
    try:
        yield
    except PeerLost as error:
        if error.rank is not None:
            raise
        try:
            channel.allgather(None)
        except PeerLate as late:
            raise PeerLate(
                f"rank {late.rank} is stuck: the others waited for it for {timeout:g} s; "
                "raise distributed.timeout if it may be that late",
                late.rank,
            ) from error
        raise


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
