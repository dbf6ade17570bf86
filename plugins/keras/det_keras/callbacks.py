"""Callbacks for a `TFKerasTrial`: Keras's own work too, those here know about resuming."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from det_core.errors import InvalidTrial

__all__ = ["Callback", "EarlyStopping", "ReduceLROnPlateau", "TFKerasTensorBoard", "TensorBoard"]


class Callback(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Code of yours at certain times. Every slot has its own, and calls it alike.

    =============================  ==========================================================================
    method                         called
    =============================  ==========================================================================
    ``set_params``, ``set_model``  before training
    ``on_train_begin(logs)``       when training begins, and again whenever it is resumed; states are loaded then
    ``on_epoch_begin(epoch)``      before the first batch of an epoch; not again when resumed within it
    ``on_train_batch_begin``       before each batch, with its number within the epoch
    ``on_train_batch_end``         after it, with its own metrics
    ``on_epoch_end(epoch, logs)``  after the last batch of an epoch, with the means of its batches; validation
                                   has times of its own, so there is no ``val_loss``
    ``on_test_begin(logs)``        before a validation; if a callback of yours has it, a trial that is preempted
                                   finishes the validation first, so that ``on_test_end`` is called
    ``on_test_batch_begin, _end``  around each of its batches
    ``on_test_end(logs)``          after it, with its metrics; not if the validation was interrupted
    ``on_train_end(logs)``         when this process ends training, well or not
    =============================  ==========================================================================

    An epoch is one pass over the training data, or ``records_per_epoch`` of the config where the length of the data is
    unknown; without that, all training is epoch 0. ``self.model.stop_training = True`` ends the trial with the next
    report of training metrics, and a checkpoint.
    """

    def on_train_workload_begin(
        self, total_batches_trained: int, batches_requested: int | None, logs: dict[str, Any]
    ) -> None:
        """Before the first batch after a report of training metrics.

        Args:
            batches_requested: until something else happens, such as a report or a validation.
            logs: empty.
        """

    def on_train_workload_end(self, total_batches_trained: int, logs: dict[str, Any]) -> None:
        """After a report of training metrics, which are the ``logs``."""

    def on_checkpoint_end(self, checkpoint_dir: str) -> None:
        """After the files of a checkpoint were written, on the chief; files that you add are stored with them."""

    def get_state(self) -> Any:
        """What checkpoints are to keep of this callback: numbers, strings, None, and lists and dicts of them."""
        return None

    def load_state(self, state: Any) -> None:
        """Take back what `get_state` returned, after ``on_train_begin``."""


class _AtValidations(Callback):
    """Mixed into a callback of Keras: acts on validations instead of epochs, and keeps its state."""

    _kept: tuple[str, ...]
    monitor: str
    _validations = 0

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Nothing: there are no validation metrics then."""

    def on_test_end(self, logs: Any = None) -> None:
        """Look at the metric."""
        known = {**(logs or {}), **{f"val_{name}": value for name, value in (logs or {}).items()}}
        if self.monitor not in known:
            raise InvalidTrial(
                f"{type(self).__name__} watches {self.monitor!r}, and validations have {sorted(known)}; pass one of "
                "these as monitor"
            )
        super().on_epoch_end(self._validations, known)
        self._validations += 1

    def get_state(self) -> Any:
        """As for `Callback`."""
        return {name: _plain(getattr(self, name)) for name in ("_validations", *self._kept)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """As for `Callback`."""
        for name, value in state.items():
            setattr(self, name, value)


class EarlyStopping(_AtValidations, tf.keras.callbacks.EarlyStopping):  # type: ignore[misc]
    """As ``tf.keras.callbacks.EarlyStopping``, at every validation; its ``patience`` counts validations.

    Set ``min_validation_period: {epochs: 1}`` in the config to have one per epoch.

    Raises:
        InvalidTrial: ``restore_best_weights`` is set.
    """

    _kept = ("wait", "stopped_epoch", "best", "best_epoch")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        tf.keras.callbacks.EarlyStopping.__init__(self, *args, **kwargs)
        if self.restore_best_weights:
            raise InvalidTrial(
                "EarlyStopping(restore_best_weights=True) is not needed: the best validation's checkpoint is kept; "
                "drop it, and take that checkpoint: det checkpoint list"
            )


class ReduceLROnPlateau(_AtValidations, tf.keras.callbacks.ReduceLROnPlateau):  # type: ignore[misc]
    """As ``tf.keras.callbacks.ReduceLROnPlateau``, at every validation, which its arguments count."""

    _kept = ("wait", "best", "cooldown_counter")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        tf.keras.callbacks.ReduceLROnPlateau.__init__(self, *args, **kwargs)


class TensorBoard(tf.keras.callbacks.TensorBoard):  # type: ignore[misc]
    """As ``tf.keras.callbacks.TensorBoard``, into the directory whose files are stored for the trial's TensorBoard.

    Args:
        args, kwargs: as there; ``log_dir`` is not used.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.pop("log_dir", None)
        super().__init__("", *args[1:], **kwargs)


TFKerasTensorBoard = TensorBoard


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
