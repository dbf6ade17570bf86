"""What a `PyTorchTrial` may ask for and must hand over."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
from torch.optim.lr_scheduler import LRScheduler as TorchScheduler

from det_core.errors import InvalidTrial
from det_core.trial import TrialContext
from det_torch import _amp, _data
from det_torch._amp import ClipGrads, MixedPrecision
from det_torch._experimental import PyTorchExperimentalContext
from det_torch._lr_scheduler import LRScheduler
from det_torch._metric_reducer import MetricReducer, ReducerSet
from det_torch.backend import TorchBackend

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

    from det_torch._tensorboard import Tensorboard

_Model = TypeVar("_Model", bound=torch.nn.Module)
_Optimizer = TypeVar("_Optimizer", bound=torch.optim.Optimizer)
_Scheduler = TypeVar("_Scheduler", bound=TorchScheduler)
_Scaler = TypeVar("_Scaler", bound=torch.amp.GradScaler)


class PyTorchTrialContext(TrialContext):
    """The context of a `PyTorchTrial`. What is wrapped is trained, checkpointed and restored.

    Without a training loop, as after `from_config`, it stands at batch 0 of an epoch without end.
    """

    def __init__(self, **place: Any) -> None:
        super().__init__(**place)
        self.models: list[torch.nn.Module] = []
        """Everything that `wrap_model` returned, in that order."""
        self._bare_models: list[torch.nn.Module] = []
        """What it was given for them, and what checkpoints hold."""
        self.optimizers: list[torch.optim.Optimizer] = []
        self.lr_schedulers: list[LRScheduler] = []
        self.device = self._choose_device()
        """Where this slot trains."""
        self._backend = TorchBackend()
        optimizations = self.config.optimizations
        self._aggregation = optimizations.aggregation_frequency
        self._average_gradients = optimizations.average_aggregated_gradients
        self._divisors: dict[torch.optim.Optimizer, int] = {}
        """Wrapped optimizer -> what the sum of its aggregated gradients is divided by."""
        self._amp: MixedPrecision | None = None
        self._wrapped_scaler: torch.amp.GradScaler | None = None
        self._reducers = ReducerSet()
        self._tensorboard: Tensorboard | None = None
        self._tensorboard_logging = True
        self._profiler: torch.profiler.profile | None = None
        self._moves_batches = True
        self._data_as_is = False
        self._epoch_len: int | None = None
        """Batches per epoch on this slot; None: nobody knows."""
        self._batch_idx = 0
        self._initial_batch = 0
        self.experimental = PyTorchExperimentalContext(self)
        if optimizations.mixed_precision != "O0":
            self.experimental.use_amp()

    def wrap_model(self, model: _Model) -> _Model:
        """Hand over a model: it moves to the device, and checkpoints will have it.

        It may be what ``torch.compile`` returned; checkpoints are the same with and without.

        Returns:
            The model to call from now on; with several slots it may be a wrapper, without the model's own attributes.
        """
        _check_type("wrap_model", model, torch.nn.Module, "torch.nn.Module")
        model = model.to(self.device)
        self._bare_models.append(model)
        self.models.append(self._backend.wrap_model(model))
        return cast("_Model", self.models[-1])

    def wrap_optimizer(
        self,
        optimizer: _Optimizer,
        backward_passes_per_step: int = 1,
        fp16_compression: bool = False,
        average_aggregated_gradients: bool | None = None,
    ) -> _Optimizer:
        """Hand over an optimizer over parameters of wrapped models.

        Args:
            optimizer: any; `step_optimizer` will step it.
            backward_passes_per_step: calls of `backward` before each `step_optimizer`, >= 1. Their gradients add up
                and are never divided by this number: divide the losses if you want their mean.
            fp16_compression: whether slots may exchange gradients as float16, whatever the config says.
            average_aggregated_gradients: for this optimizer, instead of the config's.

        Returns:
            The optimizer to pass to `step_optimizer`.
        """
        _check_type("wrap_optimizer", optimizer, torch.optim.Optimizer, "torch.optim.Optimizer")
        if not isinstance(backward_passes_per_step, int) or backward_passes_per_step < 1:
            raise InvalidTrial(
                f"backward_passes_per_step is {backward_passes_per_step!r}; expected an integer of at least 1"
            )
        average = self._average_gradients if average_aggregated_gradients is None else average_aggregated_gradients
        compression = fp16_compression or self.config.optimizations.gradient_compression
        self.optimizers.append(self._backend.wrap_optimizer(optimizer, fp16_compression=compression))
        self._divisors[self.optimizers[-1]] = self._aggregation if average else 1
        return cast("_Optimizer", self.optimizers[-1])

    def wrap_lr_scheduler(
        self, lr_scheduler: _Scheduler, step_mode: LRScheduler.StepMode, frequency: int = 1
    ) -> _Scheduler:
        """Hand over a learning rate scheduler of a wrapped optimizer; arguments as for `LRScheduler`.

        Returns:
            The scheduler itself. Step it in MANUAL_STEP mode only.

        Raises:
            InvalidTrial: the arguments do not fit, or its optimizer is not wrapped.
        """
        wrapped = LRScheduler(lr_scheduler, step_mode, frequency)
        if lr_scheduler.optimizer not in self._divisors:
            raise InvalidTrial(
                f"wrap_lr_scheduler() was given a {type(lr_scheduler).__name__} of an optimizer that is not wrapped; "
                "make it of what wrap_optimizer() returned"
            )
        self.lr_schedulers.append(wrapped)
        return lr_scheduler

    def wrap_scaler(self, scaler: _Scaler) -> _Scaler:
        """Hand over the loss scaler of a trial that drives mixed precision itself; checkpoints will have it.

        Such a trial enters ``torch.autocast``, scales its losses before `backward`, passes the scaler to
        `step_optimizer`, and calls ``scaler.update()`` after batches at which optimizers stepped.

        Returns:
            The scaler.

        Raises:
            InvalidTrial: there is one already, or det drives mixed precision.
        """
        _check_type("wrap_scaler", scaler, torch.amp.GradScaler, "torch.amp.GradScaler")
        if self._amp or self._wrapped_scaler:
            already = "det drives mixed precision in this trial" if self._amp else "the trial wrapped one before"
            raise InvalidTrial(
                f"wrap_scaler(): {already}; use one scaler, or none with optimizations.mixed_precision or "
                "experimental.use_amp()"
            )
        self._wrapped_scaler = scaler
        return scaler

    def configure_apex_amp(self, models: Any, optimizers: Any, *_: Any, **__: Any) -> Any:
        """Raises InvalidTrial, always, which says what to use instead of apex."""
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
        """Hand over a reducer of metrics of your own: a `MetricReducer`, or a function of all values.

        Args:
            reducer: gathers what you update it with, over all batches and slots of a report.
            name: of the metric. None: the reducer returns a dict of metrics.
            for_training: whether reports of training have it.
            for_validation: whether reports of validation have it.

        Returns:
            The reducer to update in ``train_batch`` or ``evaluate_batch``.
        """
        return self._reducers.wrap(reducer, name, for_training, for_validation)

    def reduce_metrics(self, for_training: bool) -> dict[str, Any]:
        """What the reducers for training, or for validation, make of what they have gathered; all slots call it."""
        return self._reducers.reduce(self.distributed, training=for_training)

    def reset_reducers(self) -> None:
        """Let all reducers forget what they have gathered; det does so by itself after each report."""
        self._reducers.reset(training=True)
        self._reducers.reset(training=False)

    def backward(
        self,
        loss: torch.Tensor,
        gradient: torch.Tensor | None = None,
        retain_graph: bool = False,
        create_graph: bool = False,
    ) -> None:
        """Add the loss's gradients to those of the parameters; arguments as for ``torch.Tensor.backward``."""
        backward: Callable[..., Any] = partial(self._amp.backward, loss) if self._amp else loss.backward
        self._backend.backward(loss, partial(backward, gradient, retain_graph, create_graph))

    def step_optimizer(
        self,
        optimizer: torch.optim.Optimizer,
        clip_grads: ClipGrads | None = None,
        auto_zero_grads: bool = True,
        scaler: torch.amp.GradScaler | None = None,
    ) -> None:
        """Step the optimizer, at every ``optimizations.aggregation_frequency``-th batch; call it in every one.

        Args:
            optimizer: as from `wrap_optimizer`.
            clip_grads: called with the parameters before the step, after gradients were averaged over the
                aggregated batches (``optimizations.average_aggregated_gradients``). Their scale is the loss's own,
                except with a scaler of yours: call its ``unscale_`` first in here.
            auto_zero_grads: set the gradients to zero afterwards. With False you do, which
                excludes aggregation.
            scaler: as from `wrap_scaler`, if you called it.

        Raises:
            InvalidTrial: the optimizer was not wrapped, the scaler is another one, or aggregation without
                ``auto_zero_grads``.
        """
        divisor = self._divisors.get(optimizer)
        if divisor is None:
            raise InvalidTrial("step_optimizer() was given an optimizer that is not wrapped; call wrap_optimizer first")
        if scaler is not self._wrapped_scaler:
            raise _amp.wrong_scaler(scaler, self._wrapped_scaler)
        if self._aggregation > 1:
            if not auto_zero_grads:
                raise InvalidTrial(
                    f"optimizations.aggregation_frequency is {self._aggregation}, which needs step_optimizer() to set "
                    "the gradients to zero; drop auto_zero_grads=False, or aggregate by yourself"
                )
            if not self._updates():
                return
        if self._amp:
            run = partial(self._amp.step, optimizer, divisor, clip_grads)
        else:
            run = partial(_amp.step, optimizer, divisor, clip_grads, scaler)
        self._backend.step(optimizer, run, clips=clip_grads is not None)
        if auto_zero_grads:
            optimizer.zero_grad()

    def to_device(self, data: Any) -> Any:
        """Move tensors, and what else has a method ``to``, within nested dicts, lists and tuples to the device.

        Numeric ``np.ndarray`` become tensors; everything else is left as it is.
        """
        return _data.to_device(data, self.device)

    def current_train_batch(self) -> int:
        """Number of batches that this slot trained before the present one, since the trial began."""
        return self._batch_idx

    def current_train_epoch(self) -> int:
        """Number of the present epoch, from 0; always 0 if the training data has no length."""
        return self._batch_idx // (self._epoch_len or sys.maxsize)

    def is_epoch_start(self) -> bool:
        """Whether the present batch is the first of its epoch."""
        return self._batch_idx % (self._epoch_len or sys.maxsize) == 0

    def is_epoch_end(self) -> bool:
        """Whether the present batch is the last of its epoch; never if the training data has no length."""
        return (self._batch_idx + 1) % (self._epoch_len or sys.maxsize) == 0

    def get_initial_batch(self) -> int:
        """The batch at which this run of the trial began: 0, or where its checkpoint was."""
        return self._initial_batch

    def set_profiler(self, *args: Any, **kwargs: Any) -> None:
        """Profile the training with ``torch.profiler.profile``, whose arguments these are.

        det starts it, steps it after every batch and stops it. Unless you give ``on_trace_ready``, traces are
        written to `get_tensorboard_path`. Without a ``schedule`` the whole training is one trace.
        """
        if "on_trace_ready" not in kwargs:
            kwargs["on_trace_ready"] = torch.profiler.tensorboard_trace_handler(str(self.get_tensorboard_path()))
        self._profiler = torch.profiler.profile(*args, **kwargs)

    def get_tensorboard_path(self) -> Path:
        """A directory of this process for TensorBoard's files, which are stored beside the checkpoints.

        Raises:
            InvalidTrial: the context has no run, as after `from_config`.
        """
        return self._board().path

    def get_tensorboard_writer(self) -> SummaryWriter:
        """A ``SummaryWriter`` of torch into `get_tensorboard_path`, always the same one. Raises as that."""
        return self._board().writer

    def get_enable_tensorboard_logging(self) -> bool:
        """Whether TensorBoard's files are stored by themselves."""
        return self._tensorboard_logging

    def set_enable_tensorboard_logging(self, enable_tensorboard_logging: bool) -> None:
        """Choose it; at first they are. AssertionError if the argument is no bool."""
        if not isinstance(enable_tensorboard_logging, bool):
            raise AssertionError(
                f"enable_tensorboard_logging must be True or False, not {enable_tensorboard_logging!r}"
            )
        self._tensorboard_logging = enable_tensorboard_logging

    def _choose_device(self) -> torch.device:
        if not torch.cuda.is_available() or self.config.resources.slots_per_trial == 0:
            return torch.device("cpu")
        device = torch.device("cuda", choose_gpu(self.distributed.local_rank, torch.cuda.device_count()))
        torch.cuda.set_device(device)
        return device

    def _board(self) -> Tensorboard:
        if self._tensorboard is None:
            raise InvalidTrial(
                "a context made by from_config() keeps no TensorBoard files; write to a directory of your own"
            )
        return self._tensorboard

    @property
    def _scaler(self) -> torch.amp.GradScaler | None:
        """The scaler whose state checkpoints have: det's own or the wrapped one."""
        return self._amp.scaler if self._amp else self._wrapped_scaler

    def _autocast(self) -> AbstractContextManager[Any]:
        """What forward passes run in: around each ``train_batch``, and around evaluation."""
        return self._amp.autocast if self._amp else nullcontext()

    def _updates(self) -> bool:
        """Whether optimizers step at the present batch."""
        return (self._batch_idx + 1) % self._aggregation == 0

    def _end_batch(self) -> None:
        """Do what waits for the end of ``train_batch``, and go on to the next batch."""
        if self._amp:
            self._amp.update_scale()
        if self.lr_schedulers and self._updates():
            for scheduler in self.lr_schedulers:
                scheduler._after_update(self._batch_idx, self._aggregation, self._epoch_len)
        self._batch_idx += 1


def choose_gpu(local_rank: int, count: int) -> int:
    """Return the number of a slot's GPU.

    Args:
        local_rank: the slot's, on its machine.
        count: the number of GPUs that its process sees.

    Raises:
        InvalidTrial: the slot has none.
    """
    if count == 1:  # a scheduler gave each process one of its own, or there is one slot
        return 0
    if local_rank >= count:
        raise InvalidTrial(
            f"the slot of local rank {local_rank} has no GPU: its process sees {count}; use at most {count} slots on "
            "this machine, or show each process one GPU with CUDA_VISIBLE_DEVICES"
        )
    return local_rank


def _check_type(method: str, given: Any, expected: type, name: str) -> None:
    if not isinstance(given, expected):
        raise InvalidTrial(f"{method}() was given {given!r}; expected a {name}")
