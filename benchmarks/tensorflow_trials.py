"""Time per batch of trials in TensorFlow, compared with TensorFlow's own loops.

    python benchmarks/tensorflow_trials.py [estimator | keras ...]

``tf.estimator.train_and_evaluate`` and an `EstimatorTrial`, or ``model.fit`` and a `TFKerasTrial`, train the same model
on the same data in separate processes with one thread each. They take turns. While one trains a round of batches, the
other waits. det reports the loss of all batches after every hundredth batch. Ratios are medians over rounds.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainers import BATCH_SIZE, Contender, Turns, compare

GOAL = 1.05
"""Maximum ratio of det's time per batch to that of TensorFlow's own loop."""
BATCHES = 500
"""Number of batches in a round."""
FOREVER = 10**9

Turn = Callable[[], None]


def dataset(wrap: Callable[[Any], Any] = lambda data: data) -> Any:
    import numpy as np
    import tensorflow as tf

    chance = np.random.default_rng(0)
    inputs, labels = chance.normal(size=(8192, 64)).astype("float32"), chance.integers(10, size=8192)
    return wrap(tf.data.Dataset.from_tensor_slices((inputs, labels))).shuffle(8192, seed=0).batch(BATCH_SIZE)


def model_fn(wrap: Callable[[Any], Any]) -> Callable[..., Any]:
    def build(features: Any, labels: Any, mode: str) -> Any:
        import tensorflow as tf

        v1 = tf.compat.v1
        hidden = v1.layers.dense(v1.layers.dense(features, 256, tf.nn.relu), 256, tf.nn.relu)
        loss = v1.losses.sparse_softmax_cross_entropy(labels, v1.layers.dense(hidden, 10))
        optimizer = wrap(v1.train.AdamOptimizer(0.001))
        train_op = optimizer.minimize(loss, global_step=v1.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    return build


def estimator(wrap: Callable[[Any], Any]) -> Any:
    import tensorflow as tf

    session = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    return tf.estimator.Estimator(model_fn(wrap), config=tf.estimator.RunConfig(session_config=session))


def turning_hook(turn: Turn) -> Any:
    import tensorflow as tf

    class Hook(tf.estimator.SessionRunHook):  # type: ignore[misc]
        def before_run(self, run_context: Any) -> None:
            turn()

    return Hook()


def plain_estimator(turn: Turn) -> None:
    import tensorflow as tf

    tf.compat.v1.disable_v2_behavior()
    train = tf.estimator.TrainSpec(lambda: dataset().repeat(), max_steps=FOREVER, hooks=[turning_hook(turn)])
    tf.estimator.train_and_evaluate(
        estimator(lambda it: it), train, tf.estimator.EvalSpec(dataset, throttle_secs=FOREVER)
    )


def det_estimator(turn: Turn) -> None:
    import det_estimator
    import tensorflow as tf

    class Trial(det_estimator.EstimatorTrial):
        def __init__(self, context: Any) -> None:
            self.context = context

        def build_estimator(self) -> Any:
            return estimator(self.context.wrap_optimizer)

        def build_train_spec(self) -> Any:
            return tf.estimator.TrainSpec(lambda: dataset(self.context.wrap_dataset), hooks=[turning_hook(turn)])

        def build_validation_spec(self) -> Any:
            return tf.estimator.EvalSpec(lambda: dataset(self.context.wrap_dataset))

    run(Trial)


def model() -> Any:
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [layers.Dense(256, "relu", input_shape=(64,)), layers.Dense(256, "relu"), layers.Dense(10)]
    )


def compiled(model: Any, optimizer: Any) -> Any:
    import tensorflow as tf

    model.compile(optimizer, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model


def turning_callback(turn: Turn) -> Any:
    import tensorflow as tf

    class Callback(tf.keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            turn()

    return Callback()


def plain_keras(turn: Turn) -> None:
    import tensorflow as tf

    trained = compiled(model(), tf.keras.optimizers.Adam(0.001))
    trained.fit(dataset(), epochs=FOREVER, verbose=0, callbacks=[turning_callback(turn)])


def det_keras(turn: Turn) -> None:
    import det_keras
    import tensorflow as tf

    class Trial(det_keras.TFKerasTrial):
        def __init__(self, context: Any) -> None:
            self.context = context

        def build_model(self) -> Any:
            wrapped = self.context.wrap_model(model())
            return compiled(wrapped, self.context.wrap_optimizer(tf.keras.optimizers.Adam(0.001)))

        def build_training_data_loader(self) -> Any:
            return dataset(self.context.wrap_dataset)

        build_validation_data_loader = build_training_data_loader

        def keras_callbacks(self) -> Any:
            return [turning_callback(turn)]

    run(Trial)


def run(trial_class: Any) -> None:
    """Train a trial in this process, as a worker of a runner would."""
    from det_testing.runs import begin_run

    from det_core import core
    from det_core.config import parse_config
    from det_core.plugins import import_target, plugin_registry
    from det_core.tracking import open_store

    searcher = {"name": "single", "metric": "loss", "max_length": {"batches": FOREVER}}
    config = parse_config(
        {"searcher": searcher, "entrypoint": "trial:Trial", "hyperparameters": {"global_batch_size": BATCH_SIZE}}
    )
    with open_store() as store:
        experiment = store.create_experiment(config=config.dump())
        trial = store.create_trial(experiment.id, hparams={"global_batch_size": BATCH_SIZE}, seed=1)
        begin_run(store, trial.id, Path.cwd())
    os.environ["DET_INFO_DIR"] = str(Path.cwd())
    mro = [f"{base.__module__}.{base.__qualname__}" for base in trial_class.__mro__]
    target = plugin_registry().find("framework", plugin_registry().choose("det_choose_framework", mro=mro) or "").target
    with core.init() as context:
        import_target(target)(trial_class, context)


CASES: dict[str, dict[str, Callable[[Turn], None]]] = {
    "estimator": {"plain": plain_estimator, "det": det_estimator},
    "keras": {"plain": plain_keras, "det": det_keras},
}


def main() -> None:
    if sys.argv[1:2] == ["--train"]:
        case, name = sys.argv[2:]
        CASES[case][name](Turns(BATCHES))
        return
    for case in sys.argv[1:] or CASES:
        with tempfile.TemporaryDirectory() as directory:
            command = [sys.executable, __file__, "--train", case]
            contenders = [Contender(name, [*command, name], Path(directory)) for name in CASES[case]]
            compare(contenders, f"{case}, {BATCHES} batches each, goal {GOAL}")


if __name__ == "__main__":
    main()
