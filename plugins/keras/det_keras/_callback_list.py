"""Calls and states of a trial's callbacks. `det_keras.callbacks.Callback` documents when they are called."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from det_core.errors import InvalidTrial
from det_keras import callbacks
from det_keras._callback_states import pack_state, unpack_state
from det_keras._context import TFKerasTrialContext

_log = logging.getLogger("det.keras")
_keras = tf.keras.callbacks

_HINTS = {
    _keras.EarlyStopping: "checks metrics at epochs, which have no validation metrics, and loses its state when the "
    "trial is resumed; use det_keras.callbacks.EarlyStopping",
    _keras.ReduceLROnPlateau: "checks metrics at epochs, which have no validation metrics, and loses its state when "
    "the trial is resumed; use det_keras.callbacks.ReduceLROnPlateau",
    _keras.ModelCheckpoint: "writes files that det does not store; set min_checkpoint_period in the config instead",
    _keras.BackupAndRestore: "restores what det already restores; remove it",
    _keras.TensorBoard: "writes files that det does not store; use det_keras.callbacks.TensorBoard",
}


class KerasCallbackList:
    """All callbacks of a trial.

    Args:
        given: the result of ``keras_callbacks``.
        context: the context of the trial.
        batches_per_epoch: the number of batches that callbacks find in their ``params``.

    Raises:
        InvalidTrial: something in the list is not a callback.
    """

    def __init__(self, given: Sequence[Any], context: TFKerasTrialContext, batches_per_epoch: int | None) -> None:
        for one in given:
            _check(one)
            if isinstance(one, callbacks.TensorBoard):
                one.log_dir = str(context.get_tensorboard_path())
        self._model = context._model
        self._model.stop_training = False
        self._context = context
        verbose = context._fit.verbose if context.distributed.rank == 0 else 0
        params = {"verbose": verbose or 0, "epochs": 1, "steps": batches_per_epoch}
        # The list skips callbacks that do not override a method of batches.
        self.keras = _keras.CallbackList([*given], add_progbar=bool(verbose), model=self._model, **params)
        self._given = given
        self._own = [one for one in given if isinstance(one, callbacks.Callback)]
        self._stateful = [one for one in given if hasattr(one, "get_state") and hasattr(one, "load_state")]
        self._begun = False

    def begin(self, states: Any) -> None:
        """Call ``on_train_begin``, then restore the states from `state`, if there are any."""
        self._begun = True
        self.keras.on_train_begin()
        if states is not None:
            self.load(states)

    def end(self) -> None:
        """Call ``on_train_end`` if training began."""
        if self._begun:
            self.keras.on_train_end()

    def has_test_begin(self) -> bool:
        """Return whether a callback of the trial has ``on_test_begin``, for example to swap in averaged weights."""
        begins = (getattr(one, "on_test_begin", None) for one in self._given)
        return any(getattr(begin, "__module__", "") != _keras.Callback.__module__ for begin in begins)

    def workload(self, event: str, *arguments: Any) -> None:
        """Call a method that only `det_keras.callbacks.Callback` has."""
        for one in self._own:
            getattr(one, event)(*arguments)
        self.heed()

    def heed(self) -> None:
        """Ask the trial to stop if a callback set ``stop_training``."""
        if self._model.stop_training:
            self._context.set_stop_requested(True)

    def state(self) -> list[Any]:
        """Return the states of the callbacks as JSON-compatible values.

        Raises:
            InvalidTrial: the state of a callback contains an object that checkpoints cannot hold.
        """
        return [[type(one).__name__, _copied(one)] for one in self._stateful]

    def load(self, states: Sequence[Any]) -> None:
        """Restore the states that `state` returned.

        Raises:
            InvalidTrial: the states belong to other callbacks.
        """
        saved, own = [name for name, _ in states], [type(one).__name__ for one in self._stateful]
        if saved != own:
            raise InvalidTrial(
                f"the checkpoint has states of the callbacks {saved}, but the trial has {own}; return the same "
                "callbacks in the same order from keras_callbacks()"
            )
        for one, (_, state) in zip(self._stateful, states, strict=True):
            one.load_state(unpack_state(state))


def _check(one: Any) -> None:
    if not isinstance(one, _keras.Callback):
        raise InvalidTrial(f"keras_callbacks() returned a list with {one!r}; expected tf.keras.callbacks.Callback")
    if isinstance(one, (callbacks.Callback, callbacks.TensorBoard)):
        return
    for kind, hint in _HINTS.items():
        if isinstance(one, kind):
            _log.warning("%s %s", type(one).__name__, hint)


def _copied(one: Any) -> Any:
    state = one.get_state()
    try:
        return pack_state(state)
    except (TypeError, RecursionError) as error:
        raise InvalidTrial(f"get_state() of {type(one).__name__} returned {state!r}: {error}") from error
