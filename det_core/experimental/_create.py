"""From a trial class in hand to a training."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from det_core.config import parse_config
from det_core.core._info import get_cluster_info
from det_core.errors import ExperimentFailed, InvalidExperimentException, InvalidTrial
from det_core.experimental import _here
from det_core.experimental._code import Code, locate
from det_core.experimental._display import say, shown
from det_core.experimental._experiment import ExperimentReference
from det_core.experimental._one_batch import one_batch
from det_core.experimental._record import as_yaml, open_embedded, open_record
from det_core.interfaces.tracking import State, TrackingStore
from det_core.trial import DEFAULT_SEARCHER, Trial, TrialContext, _script


def create(
    trial_def: type[Trial],
    config: dict[str, Any] | None = None,
    local: bool = False,
    test: bool = False,
    context_dir: str = "",
    command: list[str] | None = None,
    master_url: str | None = None,
) -> Any:
    """Train a trial class, from a script or a notebook.

    The workers are other processes. They import the class from its module in ``context_dir``. If that is the script
    which calls this function, they run the script, with its arguments, up to this call, where it ends for them; code
    under ``if __name__ == "__main__"`` does not run there. A class of a notebook's cell, which no other process has,
    trains in the notebook's own process if ``local`` is set: one trial, on one slot.

    Example::

        experiment = create(MyTrial, {"hyperparameters": {"global_batch_size": 32}}, local=True)
        model = experiment.top_checkpoint().load(trial_class=MyTrial)

    Args:
        trial_def: the class.
        config: an experiment config, except for the entrypoint, which is replaced. What it leaves out has its default;
            without a ``searcher`` one trial trains 100 batches.
        local: train here, show it, and return at the end. Otherwise the experiment trains in the background.
        test: only train one batch, validate and checkpoint. With ``local`` that happens in this very process, errors
            come as they are, and nothing is left behind.
        context_dir: the directory with the code, in which it runs; it may hold 96 MB, without what its ``.detignore``
            names. The working directory if ``local`` is set and it is empty.
        command: the script that has the class, as a path below ``context_dir``, and its arguments. By default the
            script that is running; a notebook has none, so there it is needed unless ``local`` is set or the class is
            imported from a module.
        master_url: the record that the experiment goes to unless ``local`` is set, as for `Determined`.

    Returns:
        The `ExperimentReference`; None after a local test.

    Raises:
        InvalidTrial: ``trial_def`` is no trial class, or cannot be found by a name.
        InvalidExperimentException: an argument is missing, or the config asks for what cannot run here.
        ConfigError: the config is wrong.
        DetError: the context directory is missing or too large.
        ExperimentFailed: it was trained here, and failed.
    """
    _check_trial(trial_def)
    _script.hand_over(trial_def)
    _refuse_in_worker(trial_def)
    _check_arguments(config, command)
    directory = _directory(context_dir, local=local)
    whole = _with_defaults(config or {})
    code = None if local and test else locate(trial_def, directory, command)
    if code:
        store = open_embedded() if local else open_record(master_url)
        return _submit(store, code.config(whole), directory, local=local, test=test)
    here = Code(f"session:{trial_def.__name__}").config(whole)
    if local and test:
        return _here.try_out(trial_def, here, directory)
    if local:
        return ExperimentReference(*_here.train(trial_def, here, directory))
    raise InvalidExperimentException(
        f"{trial_def.__name__} is a class of this interactive session, and command says no script that has it; "
        "write it to a script in context_dir and pass for example command=['train.py'], import it from a module, "
        "or train in this process with local=True"
    )


def create_trial_instance(
    trial_def: type[Trial],
    checkpoint_dir: str,
    config: dict[str, Any] | None = None,
    hparams: dict[str, Any] | None = None,
) -> Trial:
    """A trial without a training, to call its methods one by one.

    Example::

        trial = create_trial_instance(MyTrial, "/tmp/checkpoints", hparams={"global_batch_size": 32})
        batch = next(iter(trial.build_training_data_loader()))

    Args:
        trial_def: its class.
        checkpoint_dir: not used; a trial outside of a training neither saves nor loads. To load one:
            `Checkpoint.load`.
        config: an experiment config; without a ``searcher`` it is as for `create`.
        hparams: the hyperparameters, instead of values drawn at random from those of the config.

    Raises:
        InvalidTrial: ``trial_def`` is no trial class.
        ConfigError: the config is wrong.
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
    from det_core.runner import start_detached, submit

    parsed = parse_config(config, filename="the config")
    if test:
        parsed = parse_config(one_batch(parsed.dump()))
    experiment = submit(store, parsed, directory, original_config=as_yaml(parsed))
    say(f"Created experiment {experiment.id}")
    if local:
        _run(store, experiment.id)
    else:
        start_detached(store, experiment.id)
    return ExperimentReference(experiment.id, store.url)


def _run(store: TrackingStore, experiment_id: int) -> None:
    """Run it in this process, whose children train. Ctrl-C once: checkpoint and stop; twice: kill."""
    from det_core.runner import ExperimentRunner

    runner = ExperimentRunner(store, experiment_id)
    with shown(experiment_id, store.url):
        state = runner.run()
    if state is State.ERROR:
        error = store.experiment(experiment_id).error
        raise ExperimentFailed(
            f"experiment {experiment_id} failed: {error}; all it printed: det experiment logs {experiment_id}"
        )
    if runner.signals and state is not State.COMPLETED:
        say(f"Experiment {experiment_id} stopped; to continue: det experiment resume {experiment_id}")
        signal.raise_signal(runner.signals[0])  # which is what the caller would have got without us


def _with_defaults(config: Mapping[str, Any]) -> dict[str, Any]:
    if config.get("searcher"):
        return dict(config)
    # No metric was named that tells the best, so every validation is followed by a checkpoint.
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
            "as a part of it, write the class as its entrypoint: module:Class"
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
            f"config is {config!r}; expected a dict such as {{'searcher': ...}}; a YAML file is one by yaml.safe_load()"
        )
    if command is not None and (
        isinstance(command, str) or not command or not all(isinstance(word, str) for word in command)
    ):
        raise InvalidExperimentException(
            f"command is {command!r}; expected a script and its arguments, for example ['train.py', '--flag', 'value']"
        )
