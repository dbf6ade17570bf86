"""Keras scripts without a trial class, as in releases 0.12 to 0.15."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from det_keras import TFKerasTrial, TFKerasTrialContext

from det_core import get_cluster_info
from determined._native_api import Mode, create

__all__ = ["init"]


class NativeContext:
    """Context of a script, which trains the model at the call of its ``fit``.

    Args:
        context: context with the config and the hyperparameters.
        arguments: arguments of `create`.
    """

    def __init__(self, context: TFKerasTrialContext, arguments: dict[str, Any]) -> None:
        self._context = context
        self._arguments = arguments

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def wrap_model(self, model: Any) -> NativeModel:
        """Return a model whose ``fit`` trains the model as the experiment of the script."""
        return NativeModel(model, self._arguments)

    def wrap_dataset(self, dataset: Any) -> Any:
        """Return the dataset, which is distributed over the slots when training begins."""
        return dataset

    def wrap_optimizer(self, optimizer: Any) -> Any:
        """Return the optimizer."""
        return optimizer


class NativeModel:
    """Model of a script.

    Args:
        model: the ``tf.keras.Model``.
        arguments: arguments of `create`.
    """

    def __init__(self, model: Any, arguments: dict[str, Any]) -> None:
        self._model = model
        self._arguments = arguments

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        *,
        validation_data: Any,
        callbacks: list[Any] | None = None,
        sample_weight: Any = None,
        **settings: Any,
    ) -> None:
        """Train the model in an experiment, whose config says how long.

        If the experiment runs in the background, the script ends here.

        Args:
            x: inputs, or the whole data.
            y: targets.
            validation_data: data to validate with.
            callbacks: callbacks of Keras.
            sample_weight: weights of the records.
            settings: further arguments of ``Model.fit``, of which those of ``context.configure_fit`` are used.
        """
        data = tuple(part for part in (x, y, sample_weight) if part is not None)
        training = x if len(data) == 1 else data
        trial = _make_trial(self._model, training, validation_data, callbacks or [], settings)
        create(trial, **self._arguments)
        if not self._arguments["local"]:
            sys.exit(0)

    def fit_generator(self, generator: Any, *, validation_data: Any, **settings: Any) -> None:
        """Train as `fit` does, with a ``Sequence``."""
        self.fit(generator, validation_data=validation_data, **settings)


def init(
    config: dict[str, Any] | None = None,
    local: bool = False,
    test: bool = False,
    context_dir: str = "",
    command: list[str] | None = None,
    master_url: str | None = None,
    *,
    mode: Mode | str | None = None,
) -> NativeContext:
    """Return the context of a script that trains a Keras model without a trial class.

    Args:
        config: experiment config.
        local: whether to train on this host and wait for the end.
        test: whether to train only one batch.
        context_dir: directory with the code.
        command: path of the script, relative to ``context_dir``, and its arguments.
        master_url: URL of the tracking store.
        mode: value that replaces ``local`` and ``test``, as for `create`.
    """
    _ = import_module("determined.keras").TFKerasTrial  # prepares TensorFlow for old arguments of optimizers
    if mode is not None:
        local = test = Mode(mode) in (Mode.TEST, Mode.LOCAL)
    info = get_cluster_info()
    given = dict(config or {})
    if info and info.trial:  # a worker, which has values of the hyperparameters
        given["hyperparameters"] = {name: {"type": "const", "val": value} for name, value in info.trial.hparams.items()}
    arguments = {
        "config": config,
        "local": local,
        "test": test,
        "context_dir": context_dir,
        "command": command,
        "master_url": master_url,
    }
    return NativeContext(TFKerasTrialContext.from_config(given), arguments)


_SETTINGS = (
    "class_weight",
    "max_queue_size",
    "shuffle",
    "use_multiprocessing",
    "validation_steps",
    "verbose",
    "workers",
)


def _make_trial(
    model: Any, training: Any, validation: Any, callbacks: list[Any], settings: dict[str, Any]
) -> type[TFKerasTrial]:
    import tensorflow as tf

    class NativeTrial(TFKerasTrial):
        """Trial that trains the model of a script."""

        def __init__(self, context: TFKerasTrialContext) -> None:
            self.context = context
            context.configure_fit(**{name: settings[name] for name in _SETTINGS if name in settings})

        def build_model(self) -> Any:
            return self.context.wrap_model(model)

        def build_training_data_loader(self) -> Any:
            return self._data(training)

        def build_validation_data_loader(self) -> Any:
            return self._data(validation)

        def keras_callbacks(self) -> list[Any]:
            return callbacks

        def _data(self, data: Any) -> Any:
            return self.context.wrap_dataset(data) if isinstance(data, tf.data.Dataset) else data

    NativeTrial.__module__, NativeTrial.__qualname__ = "__main__", "NativeTrial"
    return NativeTrial
