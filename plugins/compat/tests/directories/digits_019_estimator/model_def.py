"""Handwritten digits with a model function; accuracy by a reducer of our own."""

import determined as det
import numpy as np
import tensorflow as tf
from determined.estimator import EstimatorTrial, EstimatorTrialContext, MetricReducer, RunHook
from sklearn.datasets import load_digits


class Accuracy(MetricReducer):
    def __init__(self):
        self.right = 0
        self.count = 0

    def accumulate(self, metric):
        self.right += int(np.sum(metric))
        self.count += len(metric)
        return self.right, self.count

    def cross_slot_reduce(self, per_slot_metrics):
        return sum(right for right, _ in per_slot_metrics) / sum(count for _, count in per_slot_metrics)


class NoteCheckpoints(RunHook):
    def on_checkpoint_end(self, checkpoint_dir: str) -> None:
        with tf.io.gfile.GFile(checkpoint_dir + "/note.txt", "w") as note:
            note.write(f"written by determined {det.__version__}\n")

    def on_checkpoint_load(self, checkpoint_dir: str) -> None:
        assert tf.io.gfile.exists(checkpoint_dir + "/note.txt")


class DigitsTrial(EstimatorTrial):
    def __init__(self, context: EstimatorTrialContext) -> None:
        self.context = context
        self.validation_size = context.get_data_config()["validation_size"]

    def model_fn(self, features, labels, mode):
        net = features["pixels"]
        for units in self.context.get_hparam("hidden_units"):
            net = tf.compat.v1.layers.dense(net, units, activation=tf.nn.relu)
        logits = tf.compat.v1.layers.dense(net, 10)
        predicted = tf.argmax(logits, axis=1)

        if mode == tf.estimator.ModeKeys.PREDICT:
            return tf.estimator.EstimatorSpec(mode, predictions={"digit": predicted, "logits": logits})

        loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels=labels, logits=logits)
        if mode == tf.estimator.ModeKeys.EVAL:
            right = tf.cast(tf.equal(predicted, labels), tf.int32)
            accuracy = self.context.make_metric(metric=right, reducer=Accuracy(), numpy_dtype=np.float32)
            return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})

        optimizer = tf.compat.v1.train.AdamOptimizer(learning_rate=self.context.get_hparam("learning_rate"))
        optimizer = self.context.wrap_optimizer(optimizer)
        train_op = optimizer.minimize(loss, global_step=tf.compat.v1.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    def build_estimator(self) -> tf.estimator.Estimator:
        return tf.estimator.Estimator(model_fn=self.model_fn, config=tf.estimator.RunConfig())

    def _input_fn(self, train: bool):
        def fn():
            digits = load_digits()
            rows = slice(self.validation_size, None) if train else slice(0, self.validation_size)
            pixels, labels = (digits.data[rows] / 16).astype(np.float32), digits.target[rows].astype(np.int64)
            dataset = tf.data.Dataset.from_tensor_slices(({"pixels": pixels}, labels))
            dataset = self.context.wrap_dataset(dataset)
            if train:
                dataset = dataset.shuffle(1000)
            return dataset.batch(self.context.get_per_slot_batch_size())

        return fn

    def build_train_spec(self) -> tf.estimator.TrainSpec:
        return tf.estimator.TrainSpec(self._input_fn(train=True), max_steps=1000, hooks=[NoteCheckpoints()])

    def build_validation_spec(self) -> tf.estimator.EvalSpec:
        return tf.estimator.EvalSpec(self._input_fn(train=False), steps=None)

    def build_serving_input_receiver_fns(self):
        pixels = tf.compat.v1.placeholder(tf.float32, [None, 64], name="pixels")
        return {"digits": tf.estimator.export.build_raw_serving_input_receiver_fn({"pixels": pixels})}
