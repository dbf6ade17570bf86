"""Hooks that a plugin can implement, which are the contract with plugins.

A distribution becomes a plugin through one entry point in the group ``det`` that names a light module (standard library
and det_core only). The functions of that module that implement hooks carry ``@det_core.hookimpl``::

    [project.entry-points.det]
    gzip = "det_gzip.plugin"

Implementations take only the arguments that they need. Hooks are called in these processes and threads:

============================  ======================  ==================================
hook                          process                 thread
============================  ======================  ==================================
registration hooks            any that looks up a     the caller's, once per process
                              name
det_choose_framework          worker, runner          main, before the trial is made
det_choose_backend            runner                  the trial's, before the launch
det_prepare_launch            runner                  the trial's, before the launch
det_experiment_started        runner                  main
det_experiment_finished       runner                  main
det_trial_started             runner                  the trial's, several in parallel
det_trial_finished            runner                  main
det_logs_recorded             runner                  log writer of the run
det_worker_started            chief worker            main
det_worker_finished           chief worker            main
det_metrics_reported          chief worker            report writer, after the commit
det_checkpoint_saved          chief worker            saving thread, after COMPLETED
det_artifacts_stored          chief worker            TensorBoard thread, or the caller
                                                      of upload_tensorboard_files
det_preemption_requested      chief worker            the caller of should_preempt
det_checkpoint_deleted        deleting process        deleting thread
det_model_version_registered  registering process     registering thread
============================  ======================  ==================================

A script without a runner calls the hooks of the experiment, the trial and the worker itself. It has no log lines.

If an event hook raises, the error is logged with the plugin's name, and further errors are counted. It affects neither
training nor other plugins. An event hook that waits delays its process. What talks to other systems is better written
as an observer (`det_observers`), which has a thread of its own and options in the config.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from det_core import events, specs
    from det_core.interfaces.launch_preparation import LaunchAdditions, LaunchPlan

hookimpl = pluggy.HookimplMarker("det")
"""Decorator for the functions of a plugin's entry-point module that implement hooks. Also ``det_core.hookimpl``."""
_hookspec = pluggy.HookspecMarker("det")

# --- Registration hooks yield specs, or return a list of them. Names are unique within a kind. ---


@_hookspec
def det_frameworks() -> Iterable[specs.FrameworkSpec]:
    """Offer trial frameworks.

    Example::

        @det_core.hookimpl
        def det_frameworks():
            yield FrameworkSpec(name="pytorch", target="det_torch._run:run_trial")
    """
    raise NotImplementedError


@_hookspec
def det_backends() -> Iterable[specs.BackendSpec]:
    """Offer distributed backends, which ``distributed.backend`` selects.

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


@_hookspec
def det_storage() -> Iterable[specs.StorageSpec]:
    """Offer checkpoint storage, which ``checkpoint_storage.type`` selects.

    Example::

        @det_core.hookimpl
        def det_storage():
            yield StorageSpec(name="s3", target="det_s3._storage:S3Storage", config_model="det_s3.config:S3Config")
    """
    raise NotImplementedError


@_hookspec
def det_launchers() -> Iterable[specs.LauncherSpec]:
    """Offer launchers, which ``launcher.type`` selects.

    Example::

        @det_core.hookimpl
        def det_launchers():
            yield LauncherSpec(name="slurm", target="det_slurm._launcher:SlurmLauncher")
    """
    raise NotImplementedError


@_hookspec
def det_search_methods() -> Iterable[specs.SearchMethodSpec]:
    """Offer search methods, which ``searcher.name`` selects.

    Example::

        @det_core.hookimpl
        def det_search_methods():
            yield SearchMethodSpec(name="halton", target="det_halton:Halton", config_model="det_halton:HaltonConfig")
    """
    raise NotImplementedError


@_hookspec
def det_observers() -> Iterable[specs.ObserverSpec]:
    """Offer observers of events, which ``observers`` selects.

    Example::

        @det_core.hookimpl
        def det_observers():
            yield ObserverSpec(name="mlflow", target="det_mlflow._observer:MLflow", config_model="det_mlflow:Config")
    """
    raise NotImplementedError


@_hookspec
def det_commands() -> Iterable[specs.CommandSpec]:
    """Offer commands of the ``det`` program.

    Example::

        @det_core.hookimpl
        def det_commands():
            yield CommandSpec(name="progress", target="det_progress:configure", help="show the progress of experiments")
    """
    raise NotImplementedError


# --- Choice hooks return a registered name or None. Two different answers are an error. ---


@_hookspec
def det_choose_framework(mro: Sequence[str]) -> str | None:
    """Choose the framework that runs this trial class.

    The runner asks, too, with the names that it reads in the code without running it.

    Args:
        mro: qualified names (``"module.Class"``) of the class and its bases, nearest first, so that implementations do
            not have to import a framework.

    Returns:
        The name of a framework, or None if the class is of another framework.

    Example::

        @det_core.hookimpl
        def det_choose_framework(mro):
            return "pytorch" if "det_torch._trial.PyTorchTrial" in mro else None
    """


@_hookspec
def det_choose_backend(framework: str, environ: Mapping[str, str]) -> str | None:
    """Choose the backend for this environment if the config names none.

    Args:
        framework: name of the trial's framework, or "" if the trial's code is not loaded yet, as in the runner.
        environ: environment of the calling process.

    Returns:
        The name of a backend, or None if the environment belongs to no backend of this plugin.

    Example::

        @det_core.hookimpl
        def det_choose_backend(framework, environ):
            return "horovod" if "HOROVOD_RANK" in environ else None
    """


# --- Preparation of launches. An error or a wrong answer fails the launch with the plugin's name. ---


@_hookspec
def det_prepare_launch(launch: LaunchPlan) -> LaunchAdditions | None:
    """Add environment variables to a run that is about to be launched, or wrap its command line.

    Plugins are called in the order of their distributions' names. Each receives the command line that the previous
    ones have wrapped, so the wrapper of the last one is outermost.

    Args:
        launch: the run, without secrets.

    Returns:
        The additions, or None for none.

    Example::

        @det_core.hookimpl
        def det_prepare_launch(launch):
            return LaunchAdditions(env={"NCCL_DEBUG": "INFO"}, wrapper=("nsys", "profile", "--output", "/tmp/profile"))
    """


# --- Event hooks are called in every plugin that implements them. An error in one does not affect the others. ---


@_hookspec
def det_experiment_started(event: events.ExperimentStarted) -> None:
    """Called when the runner has taken the experiment and is about to start its trials.

    Args:
        event: the experiment and its config.

    Example::

        @det_core.hookimpl
        def det_experiment_started(event):
            notify(f"experiment {event.experiment_id} started")
    """


@_hookspec
def det_experiment_finished(event: events.ExperimentFinished) -> None:
    """Called when the experiment's state was recorded and its runner is about to exit.

    Args:
        event: the experiment and its final state.

    Example::

        @det_core.hookimpl
        def det_experiment_finished(event):
            notify(f"experiment {event.experiment_id}: {event.state}")
    """


@_hookspec
def det_trial_started(event: events.TrialStarted) -> None:
    """Called before a run of a trial is launched, or when it goes on with another runner. A restart is a new run.

    Args:
        event: the trial and the number of the run.

    Example::

        @det_core.hookimpl
        def det_trial_started(event):
            log.info("trial %s run %s: %s", event.trial_id, event.run_id, event.hparams)
    """


@_hookspec
def det_trial_finished(event: events.TrialFinished) -> None:
    """Called when the trial has reached a final state.

    Args:
        event: the trial and its final state.

    Example::

        @det_core.hookimpl
        def det_trial_finished(event):
            log.info("trial %s: %s", event.trial_id, event.state)
    """


@_hookspec
def det_worker_started(event: events.WorkerStarted) -> None:
    """Called when the chief worker of a run has entered the core context.

    Args:
        event: the run, and the batches that it continues from.

    Example::

        @det_core.hookimpl
        def det_worker_started(event):
            log.info("trial %s continues from batch %s", event.trial_id, event.steps_completed)
    """


@_hookspec
def det_worker_finished(event: events.WorkerFinished) -> None:
    """Called when the chief worker of a run leaves the core context. A worker that is killed does not call it.

    Args:
        event: the run, and the error that ended it, if any.

    Example::

        @det_core.hookimpl
        def det_worker_finished(event):
            log.info("trial %s: %s", event.trial_id, event.error or "no error")
    """


@_hookspec
def det_logs_recorded(event: events.LogsRecorded) -> None:
    """Called when lines that the processes of a run printed have been recorded.

    Args:
        event: the lines.

    Example::

        @det_core.hookimpl
        def det_logs_recorded(event):
            ship(line.log for line in event.lines)
    """


@_hookspec
def det_metrics_reported(event: events.MetricsReported) -> None:
    """Called when reported metrics have been committed to the tracking store.

    Args:
        event: the metrics.

    Example::

        @det_core.hookimpl
        def det_metrics_reported(event):
            wandb.log({f"{event.group}/{k}": v for k, v in event.metrics.items()}, step=event.steps_completed)
    """


@_hookspec
def det_checkpoint_saved(event: events.CheckpointSaved) -> None:
    """Called when a checkpoint is complete, both in storage and in the tracking store.

    Args:
        event: the checkpoint.

    Example::

        @det_core.hookimpl
        def det_checkpoint_saved(event):
            mirror(event.storage_id)
    """


@_hookspec
def det_checkpoint_deleted(event: events.CheckpointDeleted) -> None:
    """Called when a checkpoint was deleted from storage.

    Args:
        event: the checkpoint.

    Example::

        @det_core.hookimpl
        def det_checkpoint_deleted(event):
            unmirror(event.storage_id)
    """


@_hookspec
def det_artifacts_stored(event: events.ArtifactsStored) -> None:
    """Called when files of the TensorBoard directory have been stored.

    Args:
        event: the files.

    Example::

        @det_core.hookimpl
        def det_artifacts_stored(event):
            index(event.location, event.resources)
    """


@_hookspec
def det_model_version_registered(event: events.ModelVersionRegistered) -> None:
    """Called when a checkpoint was registered as a version of a model.

    Args:
        event: the version and its checkpoint.

    Example::

        @det_core.hookimpl
        def det_model_version_registered(event):
            deploy(event.model, event.version, event.location)
    """


@_hookspec
def det_preemption_requested(event: events.PreemptionRequested) -> None:
    """Called when the trial was asked to save a checkpoint and stop, once per run.

    Args:
        event: the trial and the source of the request.

    Example::

        @det_core.hookimpl
        def det_preemption_requested(event):
            log.warning("trial %s is being preempted (%s)", event.trial_id, event.reason)
    """
