"""Context of a `PyTorchTrial`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
from torch.optim.lr_scheduler import LRScheduler as TorchScheduler

from det_core.errors import InvalidTrial
from det_core.trial import TrialContext
from det_torch import _data, _optimizer_steps
from det_torch._loop_state import LoopState
from det_torch._lr_scheduler import LRScheduler
from det_torch._metric_reducer import MetricReducer
from det_torch._optimizer_steps import ClipGrads, MixedPrecision
from det_torch.backend import TorchBackend

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

    from det_torch._tensorboard import TrialTensorboard

_Model = TypeVar("_Model", bound=torch.nn.Module)
_Optimizer = TypeVar("_Optimizer", bound=torch.optim.Optimizer)
_Scheduler = TypeVar("_Scheduler", bound=TorchScheduler)
_Scaler = TypeVar("_Scaler", bound=torch.amp.GradScaler)
_Wrapped = TypeVar("_Wrapped")


class PyTorchTrialContext(TrialContext):
    """Context of a `PyTorchTrial`. Wrapped objects are trained, checkpointed and restored.

    Without a training loop, as after `from_config`, the current batch is batch 0 of an endless epoch.

    Adapters of backends also use `aggregation_frequency`, `gradient_divisor`, `mixed_precision` and `scaler`.
    """

    def __init__(self, **place: Any) -> None:
        super().__init__(**place)
        self._loop = LoopState()
        """What the training loop shares with the methods of this context."""
        self.models: list[torch.nn.Module] = []
        """Models that `wrap_model` returned, in the order of the calls."""
        self.optimizers: list[torch.optim.Optimizer] = []
        """Optimizers that `wrap_optimizer` returned, in the order of the calls."""
        self.lr_schedulers: list[LRScheduler] = []
        """Wrapped learning rate schedulers, in the order of the calls of `wrap_lr_scheduler`."""
        self.device = self._choose_device()
        """Device on which this slot trains."""
        self.backend = TorchBackend()
        """Adapter of the distributed backend."""
        self._optimizations = self.get_experiment_config()["optimizations"]
        self.aggregation_frequency: int = self._optimizations["aggregation_frequency"]
        """Number of batches per optimizer step, >= 1."""
        self._divisors: dict[torch.optim.Optimizer, int] = {}
        """Wrapped optimizer -> number by which the sum of its aggregated gradients is divided."""
        self._tensorboard_logging = True
        self.experimental = PyTorchExperimentalContext(self)
        """Experimental options."""
        if self._optimizations["mixed_precision"] != "O0":
            self.experimental.use_amp()

    def wrap_model(self, model: _Model) -> _Model:
        """Register a model for training and checkpoints, and move it to the device.

        Args:
            model: the model. It may be a result of ``torch.compile``, which makes no difference in checkpoints.

        Returns:
            The model to call from now on. With several slots, it may be a wrapper without the model's own attributes.

        Raises:
            InvalidTrial: the argument is not a ``torch.nn.Module``.
        """
        _check_type("wrap_model", model, torch.nn.Module, "torch.nn.Module")
        model = model.to(self.device)
        self._loop.bare_models.append(model)
        self.models.append(self.backend.wrap_model(model))
        return cast("_Model", self.models[-1])

    def wrap_optimizer(
        self,
        optimizer: _Optimizer,
        backward_passes_per_step: int = 1,
        fp16_compression: bool = False,
        average_aggregated_gradients: bool | None = None,
    ) -> _Optimizer:
        """Register an optimizer of parameters of wrapped models.

        Args:
            optimizer: any optimizer of torch. `step_optimizer` steps it.
            backward_passes_per_step: number of calls of `backward` before each `step_optimizer`, >= 1. Their gradients
                are summed and never divided by this number. For a mean, divide the losses.
            fp16_compression: whether slots may exchange gradients as float16. The config's
                ``optimizations.gradient_compression`` allows this for all optimizers.
            average_aggregated_gradients: whether to divide aggregated gradients by the number of aggregated batches.
                None means the config's ``optimizations.average_aggregated_gradients``.

        Returns:
            The optimizer to pass to `step_optimizer`.

        Raises:
            InvalidTrial: an argument has the wrong type or is out of range.
        """
        _check_type("wrap_optimizer", optimizer, torch.optim.Optimizer, "torch.optim.Optimizer")
        if not isinstance(backward_passes_per_step, int) or backward_passes_per_step < 1:
            raise InvalidTrial(
                f"backward_passes_per_step is {backward_passes_per_step!r}; expected an integer of at least 1"
            )
        average = average_aggregated_gradients
        if average is None:
            average = self._optimizations["average_aggregated_gradients"]
        compression = fp16_compression or self._optimizations["gradient_compression"]
        self.optimizers.append(self.backend.wrap_optimizer(optimizer, fp16_compression=compression))
        self._divisors[self.optimizers[-1]] = self.aggregation_frequency if average else 1
        return cast("_Optimizer", self.optimizers[-1])

    def wrap_lr_scheduler(
        self, lr_scheduler: _Scheduler, step_mode: LRScheduler.StepMode, frequency: int = 1
    ) -> _Scheduler:
        """Register a learning rate scheduler of a wrapped optimizer.

        Args:
            lr_scheduler: the scheduler.
            step_mode: as for `LRScheduler`.
            frequency: as for `LRScheduler`.

        Returns:
            The scheduler itself. Step it only if the mode is MANUAL_STEP.

        Raises:
            InvalidTrial: an argument is invalid, or the scheduler's optimizer is not wrapped.
        """
        wrapped = LRScheduler(lr_scheduler, step_mode, frequency)
        if lr_scheduler.optimizer not in self._divisors:
            raise InvalidTrial(
                f"wrap_lr_scheduler() was given a {type(lr_scheduler).__name__} of an optimizer that is not wrapped; "
                "construct it with the optimizer that wrap_optimizer() returned"
            )
        self.lr_schedulers.append(wrapped)
        return lr_scheduler

    def wrap_scaler(self, scaler: _Scaler) -> _Scaler:
        """Register the loss scaler of a trial that implements mixed precision itself. Checkpoints include its state.

        Such a trial enters ``torch.autocast``, scales its losses before `backward`, passes the scaler to
        `step_optimizer`, and calls ``scaler.update()`` after batches at which optimizers stepped.

        Args:
            scaler: the scaler.

        Returns:
            The scaler itself.

        Raises:
            InvalidTrial: a scaler is wrapped already, or det handles mixed precision in this trial.
        """
        _check_type("wrap_scaler", scaler, torch.amp.GradScaler, "torch.amp.GradScaler")
        loop = self._loop
        if loop.amp or loop.wrapped_scaler:
            already = "det handles mixed precision in this trial" if loop.amp else "the trial already wrapped a scaler"
            raise InvalidTrial(
                f"wrap_scaler(): {already}; use one scaler, or none with optimizations.mixed_precision or "
                "experimental.use_amp()"
            )
        loop.wrapped_scaler = scaler
        return scaler

    def configure_apex_amp(self, models: Any, optimizers: Any, *_: Any, **__: Any) -> Any:
        """Reject the use of apex, which det does not support.

        Raises:
            InvalidTrial: always. The message names the alternatives.
        """
        raise InvalidTrial(
            "configure_apex_amp() needs apex, which is abandoned; remove the call and set `optimizations: "
            "{mixed_precision: O1}` in the config, or call context.experimental.use_amp(), or use torch.autocast "
            "and wrap_scaler()"
        )

    def wrap_reducer(
        self,
        reducer: MetricReducer | Callable[[list[Any]], Any],
        name: str | None = None,
        for_training: bool = True,
        for_validation: bool = True,
    ) -> MetricReducer:
        """Register a custom metric reducer.

        Args:
            reducer: a `MetricReducer`, or a function that computes the metric from a list of the values of all batches
                and slots of a report.
            name: name of the metric. None if the reducer returns a dict of metrics.
            for_training: whether training reports include the metric.
            for_validation: whether validation reports include the metric.

        Returns:
            The reducer to update in ``train_batch`` or ``evaluate_batch``.

        Raises:
            InvalidTrial: ``reducer`` is neither, or it is for training and its ``state_dict()`` does not fit into
                checkpoints.
        """
        return self._loop.reducers.wrap(reducer, name, for_training, for_validation)

    def reduce_metrics(self, for_training: bool) -> dict[str, Any]:
        """Return the metrics of all reducers for training or for validation. All slots must call it together.

        Args:
            for_training: True for the reducers for training, False for those for validation.

        Raises:
            InvalidTrial: a reducer returned an invalid metric, or two metrics have the same name.
        """
        return self._loop.reducers.reduce(self.distributed, training=for_training)

    def reset_reducers(self) -> None:
        """Reset all reducers. det does so automatically after each report."""
        self._loop.reducers.reset(training=True)
        self._loop.reducers.reset(training=False)

    def backward(
        self,
        loss: torch.Tensor,
        gradient: torch.Tensor | None = None,
        retain_graph: bool = False,
        create_graph: bool = False,
    ) -> None:
        """Add the gradients of a loss to those of the parameters.

        Args:
            loss: the loss.
            gradient: gradient with respect to the loss, with its shape. It may be None if the loss is a scalar.
            retain_graph: whether to keep the graph for another call.
            create_graph: whether to make the gradients differentiable.
        """
        amp = self._loop.amp
        if amp is None and type(self.backend) is TorchBackend:  # fast path, because this happens in each batch
            loss.backward(gradient, retain_graph, create_graph)  # type: ignore[no-untyped-call]
            return
        backward: Callable[..., Any] = partial(amp.backward, loss) if amp else loss.backward
        self.backend.backward(loss, partial(backward, gradient, retain_graph, create_graph))

    def step_optimizer(
        self,
        optimizer: torch.optim.Optimizer,
        clip_grads: ClipGrads | None = None,
        auto_zero_grads: bool = True,
        scaler: torch.amp.GradScaler | None = None,
    ) -> None:
        """Step an optimizer. Call this method in every batch.

        The optimizer steps only at every ``optimizations.aggregation_frequency``-th batch.

        Args:
            optimizer: optimizer that `wrap_optimizer` returned.
            clip_grads: function that is called with the parameters before the step, after gradients were averaged over
                the aggregated batches (``optimizations.average_aggregated_gradients``). The gradients are unscaled,
                unless the trial wrapped its own scaler. In that case, the function must call the scaler's ``unscale_``
                first.
            auto_zero_grads: whether to set the gradients to zero after the step. With False the trial must do so, and
                aggregation is not possible.
            scaler: scaler that `wrap_scaler` returned. None if the trial wrapped none.

        Raises:
            InvalidTrial: the optimizer is not wrapped, the scaler is not the wrapped one, or gradients are aggregated
                without ``auto_zero_grads``.
        """
        divisor = self._divisors.get(optimizer)
        if divisor is None:
            raise InvalidTrial("step_optimizer() was given an optimizer that is not wrapped; call wrap_optimizer first")
        loop = self._loop
        if scaler is not loop.wrapped_scaler:
            raise _optimizer_steps.wrong_scaler(scaler, loop.wrapped_scaler)
        if self.aggregation_frequency > 1:
            if not auto_zero_grads:
                raise InvalidTrial(
                    f"optimizations.aggregation_frequency is {self.aggregation_frequency}, which requires "
                    "step_optimizer() to set the gradients to zero; remove auto_zero_grads=False, or aggregate "
                    "gradients in the trial"
                )
            if not loop.updates(self.aggregation_frequency):
                return
        if loop.amp is None and type(self.backend) is TorchBackend:  # fast path, as in `backward`
            _optimizer_steps.run_optimizer_step(optimizer, divisor, clip_grads, scaler)
        else:
            if loop.amp:
                run = partial(loop.amp.step, optimizer, divisor, clip_grads)
            else:
                run = partial(_optimizer_steps.run_optimizer_step, optimizer, divisor, clip_grads, scaler)
            self.backend.step(optimizer, run, clips=clip_grads is not None)
        if auto_zero_grads:
            optimizer.zero_grad()

    def to_device(self, data: Any, warned_types: set[type] | None = None) -> Any:
        """Move data to the device.

        Args:
            data: objects with a method ``to``, such as tensors, in nested dicts, lists and tuples. Each numeric
                ``np.ndarray`` becomes a tensor. Other objects are returned unchanged.
            warned_types: as in `det_torch.to_device`.
        """
        return _data.to_device(data, self.device, warned_types)

    def current_train_batch(self) -> int:
        """Return the number of batches that this slot trained before the current batch, since the trial began."""
        return self._loop.batch

    def current_train_epoch(self) -> int:
        """Return the number of the current epoch, from 0. It is always 0 if the training data has no length."""
        return self._loop.place()[0]

    def get_model(self) -> torch.nn.Module:
        """Return the only model."""
        return _only(self.models, "model")

    def get_optimizer(self) -> torch.optim.Optimizer:
        """Return the only optimizer."""
        return _only(self.optimizers, "optimizer")

    def get_lr_scheduler(self) -> LRScheduler | None:
        """Return the only scheduler, or None if there is none."""
        return _only(self.lr_schedulers, "lr_scheduler") if self.lr_schedulers else None

    def is_epoch_start(self) -> bool:
        """Return whether the current batch is the first of its epoch."""
        return self._loop.place()[1] == 0

    def is_epoch_end(self) -> bool:
        """Return whether the current batch is the last of its epoch. False if the training data has no length."""
        return self._loop.place()[1] + 1 == self._loop.batches_per_epoch

    def get_initial_batch(self) -> int:
        """Return the number of batches that the trial trained before this run. It is 0 unless the trial was resumed."""
        return self._loop.first_batch

    def set_profiler(self, *args: Any, **kwargs: Any) -> None:
        """Profile the training with ``torch.profiler.profile``.

        det starts the profiler, steps it after every batch and stops it. Without a ``schedule`` the whole training is
        one trace.

        Args:
            args: positional arguments of ``torch.profiler.profile``.
            kwargs: its keyword arguments. The default of ``on_trace_ready`` writes traces to `get_tensorboard_path`.
        """
        if "on_trace_ready" not in kwargs:
            kwargs["on_trace_ready"] = torch.profiler.tensorboard_trace_handler(str(self.get_tensorboard_path()))
        self._loop.profiler = torch.profiler.profile(*args, **kwargs)

    def get_tensorboard_path(self) -> Path:
        """Return the directory of this process for TensorBoard files, which are stored next to the checkpoints.

        Raises:
            InvalidTrial: the context has no run, as after `from_config`.
        """
        return self._board().path

    def get_tensorboard_writer(self) -> SummaryWriter:
        """Return torch's ``SummaryWriter`` for `get_tensorboard_path`. Every call returns the same object.

        Raises:
            InvalidTrial: the context has no run, as after `from_config`.
        """
        return self._board().writer

    def get_enable_tensorboard_logging(self) -> bool:
        """Return whether TensorBoard files are stored automatically."""
        return self._tensorboard_logging

    def set_enable_tensorboard_logging(self, enable_tensorboard_logging: bool) -> None:
        """Set whether TensorBoard files are stored automatically, which is the default.

        Args:
            enable_tensorboard_logging: whether to store the files.

        Raises:
            AssertionError: the argument is not a bool.
        """
        if not isinstance(enable_tensorboard_logging, bool):
            raise AssertionError(
                f"enable_tensorboard_logging must be True or False, not {enable_tensorboard_logging!r}"
            )
        self._tensorboard_logging = enable_tensorboard_logging

    @property
    def mixed_precision(self) -> bool:
        """Return whether det runs the trial in autocast, because the config or ``use_amp`` requests it."""
        return self._loop.amp is not None

    @property
    def scaler(self) -> torch.amp.GradScaler | None:
        """Return the scaler of losses, det's own or the wrapped one. Checkpoints include its state."""
        amp = self._loop.amp
        return amp.scaler if amp else self._loop.wrapped_scaler

    def gradient_divisor(self, optimizer: torch.optim.Optimizer) -> int:
        """Return the number by which each step divides the sum of aggregated gradients, >= 1.

        Args:
            optimizer: optimizer that `wrap_optimizer` returned.
        """
        return self._divisors[optimizer]

    def _choose_device(self) -> torch.device:
        if not torch.cuda.is_available() or self.get_experiment_config()["resources"]["slots_per_trial"] == 0:
            return torch.device("cpu")
        device = torch.device("cuda", choose_gpu(self.distributed.local_rank, torch.cuda.device_count()))
        torch.cuda.set_device(device)
        return device

    def _board(self) -> TrialTensorboard:
        if self._loop.tensorboard is None:
            raise InvalidTrial(
                "a context made by from_config() stores no TensorBoard files; write them to your own directory"
            )
        return self._loop.tensorboard


class PyTorchExperimentalContext:
    """Options to set in the ``__init__`` of a trial, and old places of methods such as ``wrap_reducer``."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        self._context = context
        self.wrap_reducer = context.wrap_reducer
        """Old place of `PyTorchTrialContext.wrap_reducer`."""
        self.reduce_metrics = context.reduce_metrics
        """Old place of `PyTorchTrialContext.reduce_metrics`."""
        self.reset_reducers = context.reset_reducers
        """Old place of `PyTorchTrialContext.reset_reducers`."""

    def use_amp(self) -> None:
        """Train and evaluate in mixed precision, like ``optimizations.mixed_precision: O1`` in the config.

        Forward passes run under autocast, with float16 on CUDA and bfloat16 elsewhere. With float16,
        `PyTorchTrialContext.backward` scales the loss, and steps with infinite gradients are skipped. Weights and
        optimizer state are float32.

        Raises:
            InvalidTrial: `PyTorchTrialContext.wrap_scaler` was called, which is for trials that implement mixed
                precision themselves.
        """
        loop = self._context._loop
        if loop.wrapped_scaler:
            raise InvalidTrial(
                "use_amp() scales losses by itself, but the trial called wrap_scaler(); drop one of them"
            )
        loop.amp = loop.amp or MixedPrecision(self._context.device)

    def disable_auto_to_device(self) -> None:
        """Pass batches to ``train_batch`` and ``evaluate_batch`` without moving them to the device.

        The trial moves data to the device itself with ``context.to_device``.
        """
        self._context._loop.moves_batches = False

    def disable_dataset_reproducibility_checks(self) -> None:
        """Use data loaders unchanged if they shuffle, skip and split their batches among slots themselves.

        The training loader must then yield the batches of this slot, from ``context.get_initial_batch()`` on. When it
        ends, it is read again, as the next epoch. The validation loader must yield the batches of this slot. Without
        this call, det does all this for any loader.
        """
        self._context._loop.data_as_is = True


def choose_gpu(local_rank: int, count: int) -> int:
    """Return the number of the GPU that a slot uses, from 0.

    Args:
        local_rank: local rank of the slot, from 0.
        count: number of GPUs that the slot's process sees.

    Raises:
        InvalidTrial: there is no GPU for the slot.
    """
    if count == 1:  # either a scheduler assigned one GPU to each process, or there is one slot
        return 0
    if local_rank >= count:
        raise InvalidTrial(
            f"the slot with local rank {local_rank} has no GPU: its process sees {count}; use at most {count} slots on "
            "this machine, or assign one GPU to each process with CUDA_VISIBLE_DEVICES"
        )
    return local_rank


def _check_type(method: str, given: Any, expected: type, name: str) -> None:
    if not isinstance(given, expected):
        raise InvalidTrial(f"{method}() was given {given!r}; expected a {name}")


def _only(wrapped: list[_Wrapped], kind: str) -> _Wrapped:
    if len(wrapped) != 1:
        raise InvalidTrial(
            f"get_{kind}() needs exactly one wrapped {kind}, but there are {len(wrapped)}; keep each in an "
            f"attribute of the trial: self.{kind} = self.context.wrap_{kind}(...)"
        )
    return wrapped[0]
