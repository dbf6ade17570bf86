"""Callbacks for a `TFKerasTrial` that keep their state when the trial is resumed. Keras's own callbacks work, too."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from det_core.errors import InvalidTrial

_log = logging.getLogger("det.keras")

__all__ = ["Callback", "EarlyStopping", "ReduceLROnPlateau", "TFKerasTensorBoard", "TensorBoard"]


class Callback(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Base class for callbacks with additional methods for det. Every slot has its own callbacks, and calls them all.

    =============================  ==========================================================================
    method                         called
    =============================  ==========================================================================
    ``set_params``, ``set_model``  before training
    ``on_train_begin(logs)``       when training begins, and whenever it is resumed, before states are loaded
    ``on_epoch_begin(epoch)``      before the first batch of an epoch, but not when training resumes within it
    ``on_train_batch_begin``       before each batch, with its number within the epoch
    ``on_train_batch_end``         after each batch, with the metrics of this batch
    ``on_epoch_end(epoch, logs)``  after the last batch of an epoch, with the means over its batches; there is no
                                   ``val_loss``, because validation has its own schedule
    ``on_test_begin(logs)``        before a validation; if a callback overrides this, a preempted trial first
                                   finishes the validation, so that ``on_test_end`` is called
    ``on_test_batch_begin, _end``  before and after each batch of a validation
    ``on_test_end(logs)``          after a validation, with its metrics, such as ``val_loss``, unless it was
                                   interrupted
    ``on_train_end(logs)``         when this process stops training, whether it succeeded or failed
    =============================  ==========================================================================

    An epoch is one pass over the training data, or ``records_per_epoch`` of the config if the length of the data is
    unknown. Without either, all training is epoch 0. With ``self.model.stop_training = True``, the trial ends at the
    next report of training metrics, with a checkpoint.
    """

    def on_train_workload_begin(
        self, total_batches_trained: int, batches_requested: int | None, logs: dict[str, Any]
    ) -> None:
        """Handle the first batch after a report of training metrics, before it is trained.

        Args:
            total_batches_trained: the number of batches trained so far.
            batches_requested: the number of batches until the next event, such as a report or a validation.
            logs: an empty dict.
        """

    def on_train_workload_end(self, total_batches_trained: int, logs: dict[str, Any]) -> None:
        """Handle a report of training metrics.

        Args:
            total_batches_trained: the number of batches trained so far.
            logs: the reported metrics.
        """

    def on_checkpoint_end(self, checkpoint_dir: str) -> None:
        """Handle a written checkpoint, on the chief only. Files that you add to the directory are stored with it."""

    def get_state(self) -> Any:
        """Return the state that checkpoints save.

        It may contain None, numbers, strings, bytes, numeric NumPy arrays, and lists, tuples, sets and dicts of them.
        """
        return None

    def load_state(self, state: Any) -> None:
        """Restore the state that `get_state` returned. det calls this after ``on_train_begin``."""


class _AtValidations(Callback):
    """Mixin that makes a Keras callback act on validations instead of epochs, and keeps its state."""

    _kept: tuple[str, ...]
    monitor: str
    _validations = 0

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Do nothing, because epochs have no validation metrics."""

    def on_test_end(self, logs: Any = None) -> None:
        """Pass the metrics of a validation to the Keras callback.

        Raises:
            InvalidTrial: validations do not have the monitored metric.
        """
        known = {name: value for key, value in (logs or {}).items() for name in (key, key.removeprefix("val_"))}
        if self.monitor not in known:
            raise InvalidTrial(
                f"{type(self).__name__} monitors {self.monitor!r}, but validations have {sorted(known)}; pass one of "
                "these as monitor"
            )
        super().on_epoch_end(self._validations, known)
        self._validations += 1

    def get_state(self) -> Any:
        """Return the state that checkpoints save."""
        return {name: _plain(getattr(self, name)) for name in ("_validations", *self._kept)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `get_state` returned."""
        for name, value in state.items():
            setattr(self, name, value)


class EarlyStopping(_AtValidations, tf.keras.callbacks.EarlyStopping):  # type: ignore[misc]
    """``tf.keras.callbacks.EarlyStopping`` that acts on validations. Its ``patience`` counts validations.

    Set ``min_validation_period: {epochs: 1}`` in the config for one validation per epoch. ``restore_best_weights`` has
    no effect, because det keeps the best checkpoint.
    """

    _kept = ("wait", "stopped_epoch", "best", "best_epoch")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        tf.keras.callbacks.EarlyStopping.__init__(self, *args, **kwargs)
        if self.restore_best_weights:
            _log.warning(
                "EarlyStopping(restore_best_weights=True) does not change the weights, because det keeps the best "
                "checkpoint, to be found with: det checkpoint list"
            )
            self.__dict__.update(restore_best_weights=False)


class ReduceLROnPlateau(_AtValidations, tf.keras.callbacks.ReduceLROnPlateau):  # type: ignore[misc]
    """``tf.keras.callbacks.ReduceLROnPlateau`` that acts on validations. Its arguments count validations."""

    _kept = ("wait", "best", "cooldown_counter")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        tf.keras.callbacks.ReduceLROnPlateau.__init__(self, *args, **kwargs)


class TensorBoard(tf.keras.callbacks.TensorBoard):  # type: ignore[misc]
    """``tf.keras.callbacks.TensorBoard`` that writes to the directory whose files det stores for TensorBoard.

    Args:
        args, kwargs: the arguments of ``tf.keras.callbacks.TensorBoard``. ``log_dir`` is ignored.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.pop("log_dir", None)
        super().__init__("", *args[1:], **kwargs)


TFKerasTensorBoard = TensorBoard


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
