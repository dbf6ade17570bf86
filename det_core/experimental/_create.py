"""Functions that train a trial class, or create an instance of one, from Python."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from det_core.config import parse_config
from det_core.core._cluster_info import get_cluster_info
from det_core.errors import ExperimentFailed, InvalidExperimentException, InvalidTrial
from det_core.experimental import _in_process
from det_core.experimental._experiment import ExperimentReference
from det_core.experimental._one_batch import one_batch_config
from det_core.experimental._progress_display import display_progress, print_line, print_notices
from det_core.experimental._shared_store import config_to_yaml, open_embedded_store, open_shared_store
from det_core.experimental._trial_source import TrialSource, find_trial_source
from det_core.interfaces.records import ExperimentRecord, State
from det_core.interfaces.tracking import TrackingStore
from det_core.trial import DEFAULT_SEARCHER, Trial, TrialContext, _class_lookup


def create(
    trial_def: type[Trial],
    config: dict[str, Any] | None = None,
    local: bool = False,
    test: bool = False,
    context_dir: str = "",
    command: list[str] | None = None,
    master_url: str | None = None,
) -> Any:
    """Train a trial class from a script or a notebook.

    The workers are other processes, which import the class from its module in ``context_dir``. If that module is the
    script that calls this function, they run the script with its arguments up to this call, where it ends for them.
    Code under ``if __name__ == "__main__"`` does not run in workers. If the class is defined in a notebook cell, so
    that no other process has it, and ``local`` is set, one trial trains on one slot in the notebook's own process.

    Example::

        experiment = create(MyTrial, {"hyperparameters": {"global_batch_size": 32}}, local=True)
        model = experiment.top_checkpoint().load(trial_class=MyTrial)

    Args:
        trial_def: trial class.
        config: experiment config. Its entrypoint is replaced, and missing keys have their defaults. Without a
            ``searcher``, one trial trains 100 batches.
        local: train on this host, show progress, and return at the end. Otherwise train in the background: on the
            det server if ``master_url`` names one, else on this host.
        test: only train one batch, validate and save a checkpoint. With ``local`` this happens in this process, errors
            propagate unchanged, and everything is removed afterwards.
        context_dir: directory with the code, which is also the working directory of the workers. At most 96 MB,
            excluding files listed in its ``.detignore``. If empty and ``local`` is set, it is the working directory.
        command: path of the script that defines the class, relative to ``context_dir``, and its arguments. By default
            the running script. A notebook has none and needs it, unless ``local`` is set or the class is imported from
            a module.
        master_url: URL of the tracking store or the det server as in `Determined`. Ignored if ``local`` is set.

    Returns:
        The `ExperimentReference`, or None after a local test.

    Raises:
        InvalidTrial: ``trial_def`` is not a trial class, or cannot be imported by name.
        InvalidExperimentException: an argument is missing, or the config asks for something that cannot run here.
        ConfigError: the config is invalid.
        DetError: the context directory is missing or too large.
        ExperimentFailed: the local training failed.
    """
    _check_trial(trial_def)
    _class_lookup.hand_over_trial_class(trial_def)
    _refuse_in_worker(trial_def)
    _check_arguments(config, command)
    directory = _directory(context_dir, local=local)
    whole = _with_defaults(config or {})
    code = None if local and test else find_trial_source(trial_def, directory, command)
    if code:
        store = open_embedded_store() if local else open_shared_store(master_url)
        return _submit(store, code.config(whole), directory, local=local, test=test)
    here = TrialSource(f"session:{trial_def.__name__}").config(whole)
    if local and test:
        return _in_process.train_one_batch(
            trial_def, here, directory, needs_metric=bool((config or {}).get("searcher"))
        )
    if local:
        return ExperimentReference(*_in_process.train_in_process(trial_def, here, directory))
    raise InvalidExperimentException(
        f"{trial_def.__name__} is defined in this interactive session, and command does not name a script that defines "
        "it; write it to a script in context_dir and pass for example command=['train.py'], import it from a module, "
        "or train in this process with local=True"
    )


def create_trial_instance(
    trial_def: type[Trial],
    checkpoint_dir: str,
    config: dict[str, Any] | None = None,
    hparams: dict[str, Any] | None = None,
) -> Trial:
    """Create a trial outside of training, to call its methods one by one.

    Example::

        trial = create_trial_instance(MyTrial, "/tmp/checkpoints", hparams={"global_batch_size": 32})
        batch = next(iter(trial.build_training_data_loader()))

    Args:
        trial_def: trial class.
        checkpoint_dir: ignored, because a trial outside of training neither saves nor loads checkpoints. To load one,
            use `Checkpoint.load`.
        config: experiment config. A missing ``searcher`` is filled in as in `create`.
        hparams: hyperparameters to use instead of values sampled from the config.

    Raises:
        InvalidTrial: ``trial_def`` is not a trial class.
        ConfigError: the config is invalid.
    """
    _check_trial(trial_def)
    _check_arguments(config, None)
    whole = _with_defaults(config or {})
    if hparams is not None:
        whole["hyperparameters"] = {name: {"type": "const", "val": value} for name, value in hparams.items()}
    context = (trial_def.trial_context_class or TrialContext).from_config(whole)
    trial: Trial = trial_def(context)  # type: ignore[call-arg]
    return trial


def _submit(
    store: TrackingStore, config: Mapping[str, Any], directory: Path, *, local: bool, test: bool
) -> ExperimentReference:
    from det_core.runner import submit_experiment, train_in_background

    parsed = parse_config(config, filename="the config")
    print_notices(parsed)
    if test:
        parsed = parse_config(one_batch_config(parsed.dump()))
    text = config_to_yaml(parsed)
    if local:
        experiment = submit_experiment(store, parsed, directory, original_config=text)
        _created(experiment)
        _run(store, experiment.id)
    else:
        experiment = train_in_background(store, parsed, directory, original_config=text, recorded=_created)
    return ExperimentReference(experiment.id, store.url)


def _created(experiment: ExperimentRecord) -> None:
    print_line(f"Created experiment {experiment.id}")


def _run(store: TrackingStore, experiment_id: int) -> None:
    """Run the experiment in this process, whose child processes train.

    The first Ctrl-C saves checkpoints and stops. The second one kills the trials.
    """
    from det_core.runner import ExperimentRunner

    runner = ExperimentRunner(store, experiment_id)
    with display_progress(experiment_id, store.url):
        state = runner.run()
    if state is State.ERROR:
        error = store.experiment(experiment_id).error
        raise ExperimentFailed(
            f"experiment {experiment_id} failed: {error}; for all output: det experiment logs {experiment_id}"
        )
    if runner.signals and state is not State.COMPLETED:
        print_line(f"Experiment {experiment_id} stopped; to continue: det experiment resume {experiment_id}")
        signal.raise_signal(runner.signals[0])  # the caller expects the signal that the runner caught


def _with_defaults(config: Mapping[str, Any]) -> dict[str, Any]:
    if config.get("searcher"):
        return dict(config)
    # No metric decides which validation is the best, so every validation is followed by a checkpoint.
    return {"checkpoint_policy": "all", **config, "searcher": dict(DEFAULT_SEARCHER)}


def _check_trial(trial_def: object) -> None:
    if not (isinstance(trial_def, type) and issubclass(trial_def, Trial)):
        raise InvalidTrial(
            f"trial_def is {trial_def!r}; expected a class derived from a framework's trial, such as PyTorchTrial"
        )


def _refuse_in_worker(trial_def: type[Trial]) -> None:
    info = get_cluster_info()
    if info and info.trial:
        raise InvalidTrial(
            f"create() was called in a process of experiment {info.trial.experiment_id}; to train {trial_def.__name__} "
            "in that experiment, name the class in its config: 'entrypoint: module:Class'"
        )


def _directory(context_dir: str, *, local: bool) -> Path:
    if not (context_dir or local):
        raise InvalidExperimentException(
            "context_dir is empty; pass the directory with your code, for example context_dir='.', or local=True"
        )
    directory = Path(context_dir or ".")
    if not directory.is_dir():
        raise InvalidExperimentException(f"context_dir is {context_dir!r}; expected a directory")
    return directory


def _check_arguments(config: object, command: Sequence[str] | None) -> None:
    if config is not None and not isinstance(config, Mapping):
        raise InvalidExperimentException(
            f"config is {config!r}; expected a dict such as {{'searcher': ...}}; to read a YAML file: yaml.safe_load()"
        )
    if command is not None and (
        isinstance(command, str) or not command or not all(isinstance(word, str) for word in command)
    ):
        raise InvalidExperimentException(
            f"command is {command!r}; expected a script and its arguments, for example ['train.py', '--flag', 'value']"
        )
