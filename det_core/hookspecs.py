"""The contract with plugins: every hook, in one file.

A distribution joins by one entry point in the group ``det`` that names a light module
(standard library and det_core only), whose functions carry ``@det_core.hookimpl``::

    [project.entry-points.det]
    gzip = "det_gzip.plugin"

Implementations name only the arguments they want. Where each hook is called:

========================  =====================================  =================================
hook                      process                                thread
========================  =====================================  =================================
registration hooks        any that looks a name up               the caller's, once per process
det_choose_framework      worker                                 main, before the trial is made
det_choose_backend        runner                                 the trial's, before the launch
det_experiment_started    runner                                 main
det_experiment_finished   runner                                 main
det_trial_started         runner                                 the trial's: several may at once
det_trial_finished        runner                                 main
det_metrics_reported      chief worker                           metrics shipper, after the commit
det_checkpoint_saved      chief worker                           the one that saved, after COMPLETED
det_checkpoint_deleted    the one that deletes                   the one that deleted
det_preemption_requested  chief worker                           the caller of should_preempt
========================  =====================================  =================================

An event hook that raises is logged with its plugin's name; it breaks neither training nor the
observers after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from det_core import events, specs

hookspec = pluggy.HookspecMarker("det")

# --- Registration: yield specs. Names are unique within a kind. ---


@hookspec
def det_frameworks() -> Iterable[specs.FrameworkSpec]:
    """Offer trial frameworks.

    Example::

        @det_core.hookimpl
        def det_frameworks():
            yield FrameworkSpec(name="pytorch", target="det_torch._run:run_trial")
    """
    raise NotImplementedError


@hookspec
def det_backends() -> Iterable[specs.BackendSpec]:
    """Offer distributed backends, chosen by ``distributed.backend``.

    Example::

        @det_core.hookimpl
        def det_backends():
            yield BackendSpec(
                name="horovod",
                target="det_horovod._backend:Horovod",
                adapters={"pytorch": "det_horovod._torch:HorovodTorch"},
            )
    """
    raise NotImplementedError


@hookspec
def det_storage() -> Iterable[specs.StorageSpec]:
    """Offer checkpoint storage, chosen by ``checkpoint_storage.type``.

    Example::

        @det_core.hookimpl
        def det_storage():
            yield StorageSpec(name="s3", target="det_s3._storage:S3Storage", config_model="det_s3.config:S3Config")
    """
    raise NotImplementedError


@hookspec
def det_launchers() -> Iterable[specs.LauncherSpec]:
    """Offer launchers, chosen by ``launcher.type``.

    Example::

        @det_core.hookimpl
        def det_launchers():
            yield LauncherSpec(name="slurm", target="det_slurm._launcher:SlurmLauncher")
    """
    raise NotImplementedError


@hookspec
def det_search_methods() -> Iterable[specs.SearchMethodSpec]:
    """Offer search methods, chosen by ``searcher.name``.

    Example::

        @det_core.hookimpl
        def det_search_methods():
            yield SearchMethodSpec(name="halton", target="det_halton:Halton", config_model="det_halton:HaltonConfig")
    """
    raise NotImplementedError


@hookspec
def det_commands() -> Iterable[specs.CommandSpec]:
    """Offer commands of the ``det`` program.

    Example::

        @det_core.hookimpl
        def det_commands():
            yield CommandSpec(name="master", target="det_master.cli:configure", help="serve the REST API")
    """
    raise NotImplementedError


# --- Choice: return a registered name, or None to stand aside. Two different answers are an error. ---


@hookspec
def det_choose_framework(mro: Sequence[str]) -> str | None:
    """Name the framework that runs this trial class.

    Args:
        mro: the qualified names (``"module.Class"``) of the class and its bases, nearest first,
            so that no implementation has to import a framework to answer.

    Example::

        @det_core.hookimpl
        def det_choose_framework(mro):
            return "pytorch" if "det_torch._trial.PyTorchTrial" in mro else None
    """


@hookspec
def det_choose_backend(framework: str, environ: Mapping[str, str]) -> str | None:
    """Name the backend that suits this environment, when the config names none.

    Args:
        framework: whose trials it has to adapt; "" where the trial's code is not loaded yet, as in the runner.
        environ: the environment of the process that asks.

    Example::

        @det_core.hookimpl
        def det_choose_backend(framework, environ):
            return "horovod" if "HOROVOD_RANK" in environ else None
    """


# --- Events: every observer is called, each on its own. ---


@hookspec
def det_experiment_started(event: events.ExperimentStarted) -> None:
    """The runner has taken the experiment and is about to start its trials.

    Example::

        @det_core.hookimpl
        def det_experiment_started(event):
            notify(f"experiment {event.experiment_id} started")
    """


@hookspec
def det_experiment_finished(event: events.ExperimentFinished) -> None:
    """The experiment's state was recorded and its runner is about to leave.

    Example::

        @det_core.hookimpl
        def det_experiment_finished(event):
            notify(f"experiment {event.experiment_id}: {event.state}")
    """


@hookspec
def det_trial_started(event: events.TrialStarted) -> None:
    """A run of a trial is about to be launched; restarts count as new runs.

    Example::

        @det_core.hookimpl
        def det_trial_started(event):
            log.info("trial %s run %s: %s", event.trial_id, event.run_id, event.hparams)
    """


@hookspec
def det_trial_finished(event: events.TrialFinished) -> None:
    """The trial reached a final state.

    Example::

        @det_core.hookimpl
        def det_trial_finished(event):
            log.info("trial %s: %s", event.trial_id, event.state)
    """


@hookspec
def det_metrics_reported(event: events.MetricsReported) -> None:
    """The metrics are in the record.

    Example::

        @det_core.hookimpl
        def det_metrics_reported(event):
            wandb.log({f"{event.group}/{k}": v for k, v in event.metrics.items()}, step=event.steps_completed)
    """


@hookspec
def det_checkpoint_saved(event: events.CheckpointSaved) -> None:
    """The checkpoint is complete, in storage and in the record.

    Example::

        @det_core.hookimpl
        def det_checkpoint_saved(event):
            mirror(event.storage_id)
    """


@hookspec
def det_checkpoint_deleted(event: events.CheckpointDeleted) -> None:
    """The checkpoint is gone from storage.

    Example::

        @det_core.hookimpl
        def det_checkpoint_deleted(event):
            unmirror(event.storage_id)
    """


@hookspec
def det_preemption_requested(event: events.PreemptionRequested) -> None:
    """The trial was asked to checkpoint and leave; called once per run.

    Example::

        @det_core.hookimpl
        def det_preemption_requested(event):
            log.warning("trial %s is being preempted (%s)", event.trial_id, event.reason)
    """
