"""The class that users derive from."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from det_core.errors import InvalidTrial
from det_core.trial import Trial
from det_torch._callback import PyTorchCallback
from det_torch._context import PyTorchTrialContext
from det_torch._lr_scheduler import LRScheduler
from det_torch._reducer import Reducer


class PyTorchTrial(Trial):
    """A PyTorch model, its data and how to train it, in one of two styles.

    *The framework drives*, if ``train_batch`` has a parameter ``model``::

        build_model() -> nn.Module
        optimizer(model) -> torch.optim.Optimizer
        train_batch(batch, model, epoch_idx, batch_idx) -> loss, or {"loss": loss, ...}
        evaluate_batch(batch, model) -> {name: value}
            or evaluate_full_dataset(data_loader, model) -> {name: value}
        create_lr_scheduler(optimizer) -> LRScheduler   (optional)

    det runs backward, aggregates gradients, clips them by the hyperparameter ``clip_grad_l2_norm``
    or ``clip_grad_val`` if the config has one, and steps the optimizer and the scheduler.

    *You drive*, otherwise. ``__init__`` hands everything that has state to the context, and
    ``train_batch`` does the rest, with as many models and optimizers as you like::

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

    In both, models are in training mode when training begins. Modules that callbacks or ``train_batch`` put into
    evaluation mode, and parameters that they freeze, stay so after validations and checkpoints.

    In both, ``build_callbacks`` may return `PyTorchCallback` objects, whose methods run at epochs, validations,
    checkpoints and the like, and metrics that are no plain mean over batches go through ``context.wrap_reducer``.
    """

    trial_context_class = PyTorchTrialContext
    safetensors = False
    """Set it in the class: whether checkpoints hold weights as ``model_0.safetensors``, ``model_1.safetensors`` ..."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context

    @abstractmethod
    def train_batch(self, *args: Any, **kwargs: Any) -> Any:
        """Train on one batch; signature as in the class's description.

        Args:
            batch: what the training loader yields, on the device; arrays are tensors by now.
            model: as from ``build_model``, in training mode (first style only).
            epoch_idx: number of the epoch, from 0.
            batch_idx: number of batches that this slot trained before, since the trial began.

        Returns:
            The loss, or a dict with ``"loss"`` and further metrics. In the first style the
            loss is a scalar tensor with a graph. Other values are numbers, strings, None, tensors or
            arrays, and lists and dicts of them. Reports average numbers over batches, and arrays over batches and
            elements.
        """

    @abstractmethod
    def build_training_data_loader(self) -> DataLoader[Any]:
        """A `det_torch.DataLoader` over the training set, in batches of ``context.get_per_slot_batch_size()``."""

    @abstractmethod
    def build_validation_data_loader(self) -> DataLoader[Any]:
        """A `det_torch.DataLoader` over the validation set."""

    def build_model(self) -> torch.nn.Module:
        """The network (first style only)."""
        raise NotImplementedError

    def optimizer(self, model: torch.nn.Module) -> torch.optim.Optimizer:
        """The optimizer of the model, which is on the device already (first style only)."""
        raise NotImplementedError

    def create_lr_scheduler(self, optimizer: torch.optim.Optimizer) -> LRScheduler | None:
        """The schedule of the optimizer's learning rate, if any (first style only)."""
        return None

    def evaluate_batch(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Metrics of one validation batch, the same names for every batch; see `evaluation_reducer`.

        Called with the batch (and the model, in the first style; and the batch's number among those of this slot, if
        there is a parameter ``batch_idx``), in evaluation mode, without gradients, and
        with the global random generators seeded alike every time. Override this or `evaluate_full_dataset`, never both.
        """
        raise NotImplementedError

    def evaluate_full_dataset(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Metrics over the whole validation set.

        Called with a loader (and the model, in the first style), otherwise as `evaluate_batch`. Batches come as
        the loader made them: move them with ``context.to_device``.
        """
        raise NotImplementedError

    def evaluation_reducer(self) -> Reducer | dict[str, Reducer]:
        """How the metrics of `evaluate_batch` become one: for all of them, or by name."""
        return Reducer.AVG

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        """Callbacks by name, to run in this order. Checkpoints have their state under these names."""
        return {}

    def get_batch_length(self, batch: Any) -> int:
        """Number of records in a batch, which is the length of the first tensor or array in it.

        Raises:
            InvalidTrial: there is none; override this for batches of types of your own.
        """
        while isinstance(batch, (dict, list, tuple)) and batch:
            batch = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
        if isinstance(batch, (torch.Tensor, np.ndarray)) and batch.ndim:
            return len(batch)
        raise InvalidTrial(f"{batch!r} of a batch is no tensor or array with a length; override get_batch_length()")


def reset_parameters(model: torch.nn.Module) -> None:
    """Let every module in ``model`` that has a method ``reset_parameters`` draw its weights anew."""
    for module in model.modules():
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            reset()
