"""Base class of users' PyTorch trials."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from det_core.errors import InvalidTrial
from det_core.trial import Trial
from det_torch._batch_reduction import Reducer
from det_torch._callback import PyTorchCallback
from det_torch._context import PyTorchTrialContext
from det_torch._lr_scheduler import LRScheduler


class PyTorchTrial(Trial):
    """A PyTorch model with its data and its training, in one of two styles.

    In the first style *the framework drives*. A trial has this style if ``train_batch`` has a parameter ``model``::

        build_model() -> nn.Module
        optimizer(model) -> torch.optim.Optimizer
        train_batch(batch, model, epoch_idx, batch_idx) -> loss, or {"loss": loss, ...}
        evaluate_batch(batch, model) -> {name: value}
            or evaluate_full_dataset(data_loader, model) -> {name: value}
        create_lr_scheduler(optimizer) -> LRScheduler   (optional)

    det runs backward, aggregates gradients, clips them by the hyperparameter ``clip_grad_l2_norm``
    or ``clip_grad_val`` if the config has one, and steps the optimizer and the scheduler.

    Otherwise *you drive*. ``__init__`` passes every object that has state to the context, and ``train_batch`` does the
    rest, with any number of models and optimizers::

        def __init__(self, context):
            self.context = context
            self.model = context.wrap_model(Net())
            self.sgd = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1))

        def train_batch(self, batch, epoch_idx, batch_idx):
            loss = ...
            self.context.backward(loss)
            self.context.step_optimizer(self.sgd)
            return {"loss": loss}

        def evaluate_batch(self, batch): ...           # or evaluate_full_dataset(self, data_loader)

    The rest applies to both styles. Models are in training mode when training begins. If callbacks or ``train_batch``
    put modules into evaluation mode or freeze parameters, validations and checkpoints preserve this.

    ``build_callbacks`` may return `PyTorchCallback` objects, whose methods run at events such as epochs, validations
    and checkpoints. Metrics that are not a plain mean over batches use ``context.wrap_reducer``.

    Args:
        context: context of the trial, stored as ``self.context``.
    """

    trial_context_class = PyTorchTrialContext
    safetensors = False
    """Whether checkpoints hold weights as ``model_0.safetensors``, ``model_1.safetensors`` and so on.

    Set it in the class.
    """

    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context

    @abstractmethod
    def train_batch(self, *args: Any, **kwargs: Any) -> Any:
        """Train on one batch. The description of the class gives the signature of each style.

        Args:
            batch: batch of the training loader, on the device, with arrays converted to tensors.
            model: model from ``build_model``, in training mode (first style only).
            epoch_idx: number of the epoch, from 0.
            batch_idx: number of batches that this slot trained before, since the start of the trial.

        Returns:
            The loss, or a dict with ``"loss"`` and further metrics. In the first style the loss is a scalar tensor
            with a graph. Other values are numbers, strings, None, tensors or arrays, and lists and dicts of them.
            Reports average numbers over batches, and arrays over batches and elements.
        """

    @abstractmethod
    def build_training_data_loader(self) -> DataLoader[Any]:
        """Return a `det_torch.DataLoader` over the training set.

        Its batch size is ``context.get_per_slot_batch_size()``.
        """

    @abstractmethod
    def build_validation_data_loader(self) -> DataLoader[Any]:
        """Return a `det_torch.DataLoader` over the validation set."""

    def build_model(self) -> torch.nn.Module:
        """Return the network (first style only)."""
        raise NotImplementedError

    def optimizer(self, model: torch.nn.Module) -> torch.optim.Optimizer:
        """Return the optimizer of the model (first style only).

        Args:
            model: model, already on the device.
        """
        raise NotImplementedError

    def create_lr_scheduler(self, optimizer: torch.optim.Optimizer) -> LRScheduler | None:
        """Return the schedule of the optimizer's learning rate, or None for a constant rate (first style only).

        Args:
            optimizer: optimizer from `optimizer`, already wrapped.
        """
        return None

    def evaluate_batch(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the metrics of one validation batch.

        Models are in evaluation mode, gradients are off, and the global random generators have the same seed in each
        validation. Override either this method or `evaluate_full_dataset`.

        Args:
            batch: batch of the validation loader, on the device.
            model: model from ``build_model`` (first style only).
            batch_idx: number of validation batches that this slot evaluated before. Passed only if the method has a
                parameter of this name.

        Returns:
            Metric name -> value, with the same names for every batch. `evaluation_reducer` chooses the reduction.
        """
        raise NotImplementedError

    def evaluate_full_dataset(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the metrics over the whole validation set, under the same conditions as `evaluate_batch`.

        Args:
            data_loader: loader of the validation set. Move its batches to the device with ``context.to_device``.
            model: model from ``build_model`` (first style only).

        Returns:
            Metric name -> value.
        """
        raise NotImplementedError

    def evaluation_reducer(self) -> Reducer | dict[str, Reducer]:
        """Return the reducer for all metrics of `evaluate_batch`, or one reducer per metric name."""
        return Reducer.AVG

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        """Return callbacks by name, in the order in which they run. Checkpoints hold their state under these names."""
        return {}

    def get_batch_length(self, batch: Any) -> int:
        """Return the number of records in a batch, which is the length of the first tensor or array in it.

        Args:
            batch: batch of a data loader.

        Raises:
            InvalidTrial: the batch has no tensor or array. Override this method for batches of other types.
        """
        while isinstance(batch, (dict, list, tuple)) and batch:
            batch = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
        if isinstance(batch, (torch.Tensor, np.ndarray)) and batch.ndim:
            return len(batch)
        raise InvalidTrial(
            f"the length of a batch is unknown: {batch!r} is not a tensor or array with a length; "
            "override get_batch_length()"
        )


def reset_parameters(model: torch.nn.Module) -> None:
    """Reinitialize the weights of all modules of a model that have a method ``reset_parameters``."""
    for module in model.modules():
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            reset()
