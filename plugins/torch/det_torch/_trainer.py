"""Training from a script, with `init` to join or begin a run and `Trainer` to train a trial in it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import islice
from typing import Any

from det_core import core
from det_core.config import Length, Unit
from det_core.errors import InvalidTrial
from det_core.trial import Period, Progress, TrainingPlan, TrialLoop, trial_description
from det_core.trial.random_generators import derive_seed
from det_torch._adapter import PyTorchAdapter
from det_torch._checkpoints import _reader
from det_torch._context import PyTorchTrialContext
from det_torch._random import seed_all
from det_torch._tensorboard import TrialTensorboard
from det_torch._train_units import Batch, TrainUnit
from det_torch._trial import PyTorchTrial
from det_torch.backend import join_script_workers, make_torch_backend

_log = logging.getLogger("det.torch")

_POLICIES = ("best", "all", "none")
_DEFAULT_REPORTING_PERIOD = Batch(100)
_PROGRESS_SUFFIXES = (".json", ".pkl")
"""Suffixes of the small files of a checkpoint, some of which record the progress of its training."""


class ScriptContext(PyTorchTrialContext):
    """Context of a trial that `init` yields, together with the run that a `Trainer` reports to."""

    _core: core.Context | None = None
    """Core context of the run, or None after the block of `init` has ended."""
    _metric: str | None = None
    """Metric that decides which checkpoint is best, or None if neither experiment nor script names one."""
    _saved_seed: int | None = None
    """Seed of the checkpoint that a script continues."""
    _was_fit = False

    def get_trial_seed(self) -> int:
        return super().get_trial_seed() if self._saved_seed is None else self._saved_seed


@contextmanager
def init(
    *,
    hparams: Mapping[str, Any] | None = None,
    exp_conf: Mapping[str, Any] | None = None,
    distributed: core.DistributedContext | None = None,
    aggregation_frequency: int = 1,
    enable_tensorboard_logging: bool = True,
    quiet: bool = False,
    resume: int | None = None,
) -> Iterator[ScriptContext]:
    """Join the experiment that started this script, or begin a new experiment if the script runs by itself.

    At the end of the block everything that was reported is written. One block trains one trial. A script may have
    several blocks, one after another.

    Args:
        hparams: hyperparameters by name, JSON-compatible. In an experiment the config's hyperparameters take
            precedence over those of the same name.
        exp_conf: keys of an experiment config for a script that runs by itself, ignored in an experiment. All
            random numbers derive from its ``reproducibility.experiment_seed``, which by default differs in each run.
        distributed: this worker among all workers, which train with the backend that ``DET_BACKEND`` names. None means
            the workers that ``python -m det_core.launch`` started, or this process alone without such workers.
        aggregation_frequency: number of batches per optimizer step, >= 1. 1 means the value of the config.
        enable_tensorboard_logging: whether to write metrics for TensorBoard and to store its files.
        quiet: as in `det_core.core.init`.
        resume: id of the experiment that a script continues when it runs by itself, as in `det_core.core.init`. Its
            hyperparameters take precedence over those of the script, and `Trainer.fit` starts from its latest
            checkpoint.

    Yields:
        The context to make the trial with.

    Raises:
        ValueError: an argument is not as described, or there are several workers but no backend.
        ConfigError: ``exp_conf`` is invalid.
        DetError: the experiment ``resume`` cannot be continued.
    """
    if type(aggregation_frequency) is not int or aggregation_frequency < 1:
        raise ValueError(f"aggregation_frequency is {aggregation_frequency!r}; expected an integer of at least 1")
    mode = core.TensorboardMode.AUTO if enable_tensorboard_logging else core.TensorboardMode.MANUAL
    given = dict(exp_conf or {})
    config = _config(given, hparams or {}, aggregation_frequency)
    distributed = join_script_workers(distributed)
    with (
        core.init(distributed=distributed, tensorboard_mode=mode, config=config, quiet=quiet, resume=resume) as run,
        closing(TrialTensorboard(run.train)) as tensorboard,
    ):
        seed_all(run.trial.trial_seed)
        context = ScriptContext.from_core(run, hparams={**(hparams or {}), **run.trial.hparams})
        context._core = run
        if run.info or (given.get("searcher") or {}).get("metric"):
            context._metric = context.get_experiment_config()["searcher"]["metric"]
        if aggregation_frequency > 1:
            context.aggregation_frequency = aggregation_frequency
        context._loop.tensorboard = tensorboard
        context.set_enable_tensorboard_logging(enable_tensorboard_logging)
        with closing(make_torch_backend(context)) as context.backend:
            try:
                yield context
            finally:
                context._core = None


class Trainer:
    """Training loop for a trial that was made with the context of `init`.

    Args:
        trial: trial to train.
        context: context that `init` yields.

    Example::

        with det_torch.init(hparams={"lr": 0.1, "global_batch_size": 32}) as context:
            trainer = det_torch.Trainer(MyTrial(context), context)
            trainer.fit(max_length=det_torch.Epoch(10), validation_period=det_torch.Epoch(1))

    Raises:
        InvalidTrial: an argument is of another type.
    """

    def __init__(self, trial: PyTorchTrial, context: PyTorchTrialContext) -> None:
        if not isinstance(trial, PyTorchTrial):
            raise InvalidTrial(
                f"Trainer() was given {trial!r}; expected an instance of a class derived from PyTorchTrial"
            )
        if not isinstance(context, ScriptContext):
            raise InvalidTrial(
                f"Trainer() was given the context {context!r}; expected the one that init() yields: "
                "with det_torch.init() as context: ..."
            )
        self._trial = trial
        self._context = context
        self._profiles = False

    def configure_profiler(
        self,
        enabled: bool = False,
        sync_timings: bool = True,
        begin_on_batch: int = 0,
        end_after_batch: int | None = None,
    ) -> None:
        """Choose whether `fit` records the load of the host, like its argument ``profiling_enabled``.

        Args:
            enabled: whether to record.
            sync_timings: without effect, because batches are not timed. Accepted for older scripts.
            begin_on_batch: without effect, because the whole training is profiled. Accepted for older scripts.
            end_after_batch: without effect, like ``begin_on_batch``.
        """
        self._profiles = enabled
        if enabled and (begin_on_batch or end_after_batch is not None):
            _log.warning("begin_on_batch and end_after_batch have no effect: the whole training is profiled")

    def fit(
        self,
        checkpoint_period: TrainUnit | None = None,
        validation_period: TrainUnit | None = None,
        max_length: TrainUnit | None = None,
        reporting_period: TrainUnit = _DEFAULT_REPORTING_PERIOD,
        checkpoint_policy: str = "best",
        latest_checkpoint: str | None = None,
        step_zero_validation: bool = False,
        test_mode: bool = False,
        profiling_enabled: bool = False,
        *,
        trust: bool = False,
    ) -> None:
        """Train to the end, or until the process is asked to stop.

        Training ends with a validation and a checkpoint. Arguments at their defaults use the values of the config.

        Args:
            checkpoint_period: when to save additional checkpoints, as `Batch`, `Epoch` or `Record` with a period or
                with points. Without it, one is saved after every 15 minutes of training (``checkpoint_interval``).
            validation_period: when to run additional validations, in the same form.
            max_length: total length of training, from the start of the trial. In an experiment the length that the
                searcher orders takes precedence. A script that runs by itself must set a length here or in its config.
            reporting_period: length of training over which reported training metrics are averaged.
            checkpoint_policy: validations after which to checkpoint, one of ``best``, ``all`` or ``none``. In a script
                that runs by itself without a ``searcher.metric`` in ``exp_conf``, ``all`` replaces ``best``.
            latest_checkpoint: storage id of a checkpoint to continue from, written by det or by an earlier system. The
                latest one of the trial itself takes precedence, in an experiment and in a script that resumes.
            step_zero_validation: whether to validate before the first batch.
            test_mode: whether to train one batch, validate one batch (or the whole validation set, with
                ``evaluate_full_dataset``), checkpoint, and return.
            profiling_enabled: whether to record the load of the host.
            trust: whether ``latest_checkpoint`` may run code that its files name, which old checkpoints may require.

        Raises:
            ValueError: an argument is not as described.
            InvalidTrial: the trial is invalid, was already trained, or the block of `init` has ended.
            CheckpointNotFound: ``latest_checkpoint`` is not in the storage.
            UntrustedCheckpoint: reading ``latest_checkpoint`` could run code, and ``trust`` is false.
        """
        run, config = self._run(), self._context.get_experiment_config()
        plan = TrainingPlan(
            length=Length(1, Unit.BATCHES) if test_mode else _length(max_length, run, config),
            reporting=_reporting_period(reporting_period, config),
            validation=_period("validation_period", validation_period) or Length.parse(config["min_validation_period"]),
            checkpoint=_period("checkpoint_period", checkpoint_period) or Length.parse(config["min_checkpoint_period"]),
            checkpoint_interval=config["checkpoint_interval"],
            checkpoint_policy=self._policy(checkpoint_policy, config),
            initial_validation=step_zero_validation or config["perform_initial_validation"],
            rehearsal=config["rehearsal"],
            stop_on_nan=config["stop_on_nan"],
            metric=self._context._metric,
            smaller_is_better=config["searcher"]["smaller_is_better"],
        )
        latest = run.latest_checkpoint or latest_checkpoint
        first_batch = self._find_beginning(run, latest, trust=trust)
        if test_mode:
            plan = _shorten(plan, 0 if run.info else first_batch)
        adapter_class = _OneBatchEvaluated if test_mode else PyTorchAdapter
        self._context._was_fit = True
        # A continued trial must draw the same random numbers, independent of those that the script drew since init().
        seed_all(derive_seed(self._context.get_trial_seed(), "fit"))
        adapter = adapter_class(
            self._trial,
            self._context,
            description=trial_description.describe_trial(type(self._trial), run)
            | {"hparams": self._context.get_hparams()},
            first_batch=first_batch,
            latest=latest,
            trust=trust,
        )
        if self._profiles or profiling_enabled or config["profiling"]["enabled"]:
            run.profiler.on()
        try:
            TrialLoop(adapter, run, self._context, plan=plan, latest=latest).run()
        finally:
            run.profiler.off()

    def _run(self) -> core.Context:
        if self._context._core is None:
            raise InvalidTrial("fit() was called after the block of init() ended; call it inside the block")
        if self._context._was_fit:
            raise InvalidTrial(
                "fit() was called twice in one block of init(); begin another block for another training"
            )
        return self._context._core

    def _policy(self, policy: str, config: Mapping[str, Any]) -> str:
        if policy not in _POLICIES:
            raise ValueError(f"checkpoint_policy is {policy!r}; expected one of {', '.join(map(repr, _POLICIES))}")
        policy = config["checkpoint_policy"] if policy == "best" else policy
        if policy == "best" and self._context._metric is None:
            _log.warning(
                "checkpoint_policy 'best' needs a metric, so 'all' is used instead; name a metric with "
                "init(exp_conf={'searcher': {'metric': 'validation_loss'}}), or pass checkpoint_policy='all'"
            )
            return "all"
        return policy

    def _find_beginning(self, run: core.Context, latest: str | None, *, trust: bool) -> int:
        """Return the number of the batch to begin at. A script adopts the seed of the checkpoint that it continues."""
        if run.info or latest is None:
            return run.trial.steps_completed
        with run.checkpoint.restore_path(latest, selector=lambda name: name.endswith(_PROGRESS_SUFFIXES)) as path:
            saved = Progress.read(path)
            if saved is None:
                return _reader.read_batches_trained(path, trust=trust) or 0
        self._context._saved_seed = saved.trial_seed
        return saved.batches_trained


class _OneBatchEvaluated(PyTorchAdapter):
    """Adapter of a test, whose validations have one batch."""

    def _evaluate(self) -> Iterator[dict[str, Any]]:
        return islice(super()._evaluate(), 1)


def _config(given: dict[str, Any], hparams: Mapping[str, Any], aggregation_frequency: int) -> dict[str, Any]:
    """Return the config of a script that runs by itself."""
    if hparams:
        constants = {name: {"type": "const", "val": value} for name, value in hparams.items()}
        given["hyperparameters"] = {**(given.get("hyperparameters") or {}), **constants}
    if aggregation_frequency > 1:
        frequency = {"aggregation_frequency": aggregation_frequency}
        given["optimizations"] = {**(given.get("optimizations") or {}), **frequency}
    return {**given, "searcher": {"max_length": None, **(given.get("searcher") or {})}}


def _length(max_length: TrainUnit | None, run: core.Context, config: Mapping[str, Any]) -> Length:
    given = _period("max_length", max_length)
    if isinstance(given, tuple) or (given and not given.value):
        raise ValueError(f"max_length is {max_length!r}; expected one number >= 1, such as Batch(1000)")
    configured = config["searcher"].get("max_length")
    ordered = run.searcher.ordered() if run.info else configured and Length.parse(configured)
    length = given if given and not (run.info and ordered and ordered.unit) else ordered
    if length is None:
        where = (
            "the config's searcher has no max_length" if run.info else "a script that runs by itself has no searcher"
        )
        raise ValueError(
            f"the length of training is unknown: {where}; set it, for example with fit(max_length=Epoch(10))"
        )
    return length


def _reporting_period(given: TrainUnit, config: Mapping[str, Any]) -> Period:
    by_config = Length(config["scheduling_unit"], Unit.BATCHES)
    return by_config if given is _DEFAULT_REPORTING_PERIOD else _period("reporting_period", given) or by_config


def _period(name: str, given: TrainUnit | None) -> Period | None:
    if given is None:
        return None
    if not isinstance(given, TrainUnit):
        raise ValueError(
            f"{name} is {given!r}; expected Batch(100), Epoch(1) or Record(6400), or points: Batch([5, 30])"
        )
    return given._period()


def _shorten(plan: TrainingPlan, first_batch: int) -> TrainingPlan:
    """Return the plan of a test, which trains the first batch only and saves nothing before its end."""
    length = Length(first_batch + 1, Unit.BATCHES)
    return replace(plan, length=length, initial_validation=False, rehearsal=False, checkpoint_policy="none")
