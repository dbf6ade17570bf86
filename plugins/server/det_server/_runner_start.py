"""Start of an experiment's runner by the caller of a request."""

from __future__ import annotations

from starlette.requests import Request

from det_core.errors import DetError, ExperimentBusy
from det_core.interfaces.records import State
from det_server._accounts import record_action
from det_server._site import site_of


def start_runner(request: Request, experiment_id: int, *, from_beginning: bool = False) -> None:
    """Start the runner of an experiment, and record that the caller did so.

    Args:
        request: the request.
        experiment_id: the experiment.
        from_beginning: whether trials start without their checkpoints.

    Raises:
        ExperimentBusy: it has a runner.
        DetError: it has completed, or cannot be run.
    """
    site = site_of(request)
    experiment = site.store.experiment(experiment_id)
    if holder := site.store.lease_holder(experiment_id):
        raise ExperimentBusy(f"experiment {experiment_id} is being run by {holder}; to stop it first, pause it")
    if experiment.state is State.COMPLETED:
        raise DetError(
            f"experiment {experiment_id} is COMPLETED, so there is nothing to resume; to train it further: "
            f"det experiment continue {experiment_id} --config searcher.max_length=LENGTH"
        )
    record_action(request, "resume", f"experiment {experiment_id}")
    site.keeper.start_runner(experiment_id, from_beginning=from_beginning)
