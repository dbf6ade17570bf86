"""Features of trials, and errors about mistakes in them."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import det_estimator
import numpy as np
import pytest
import tensorflow as tf
from det_estimator import EstimatorTrial, EstimatorTrialContext, RunHook, load_estimator_from_checkpoint_path
from det_estimator._adapter import _read_state
from det_estimator._specs import EstimatorSpecs
from det_testing.framework.trial_harness import TrialHarness

from det_core.core import EarlyExitReason
from det_core.errors import CheckpointCorrupt, InvalidTrial

v1 = tf.compat.v1
INPUTS = np.arange(12, dtype=np.float32)[:, None]
MakeLaboratory = Callable[..., TrialHarness]


def records(size: int = 12) -> Any:
    return tf.data.Dataset.from_tensor_slices(({"x": INPUTS[:size]}, 2 * INPUTS[:size]))


class Line(EstimatorTrial):
    """Linear model on three batches of four records."""

    hooks: ClassVar[list[Any]] = []
    width = 1

    def build_estimator(self) -> Any:
        return tf.estimator.Estimator(
            self.model, config=tf.estimator.RunConfig(tf_random_seed=3), params={"rate": 0.001}
        )

    def build_train_spec(self) -> Any:
        return tf.estimator.TrainSpec(self.data, hooks=self.hooks)

    def build_validation_spec(self) -> Any:
        return tf.estimator.EvalSpec(self.data)

    def data(self) -> Any:
        return self.context.wrap_dataset(records()).batch(4)

    def model(self, features: Any, labels: Any, mode: str, params: Any) -> Any:
        parts = tf.keras.layers.Dense(self.width, use_bias=False)(features["x"])
        guess = tf.reduce_sum(parts, 1, keepdims=True)
        if mode == tf.estimator.ModeKeys.PREDICT:
            return tf.estimator.EstimatorSpec(mode, predictions={"guess": guess})
        loss = tf.reduce_mean((guess - labels) ** 2)
        optimizer = self.context.wrap_optimizer(v1.train.AdamOptimizer(params["rate"]))
        train_op = optimizer.minimize(loss, v1.train.get_global_step())
        names = {"kind": (tf.constant("line"), tf.no_op()), "error": v1.metrics.mean_absolute_error(labels, guess)}
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=names)


class Noting(RunHook):
    """Hook that records its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.paths: list[Path] = []

    def before_run(self, run_context: Any) -> None:
        self.calls.append("batch")

    def end(self, session: Any) -> None:
        self.calls.append("end")

    def on_checkpoint_load(self, checkpoint_dir: str) -> None:
        self.calls.append("load")

    def on_checkpoint_end(self, checkpoint_dir: str) -> None:
        self.calls.append("checkpoint")
        assert any(Path(checkpoint_dir).glob("model.ckpt-*.index"))
        Path(checkpoint_dir, "mine.txt").write_text("kept")

    def on_trial_close(self) -> None:
        self.calls.append("close")


class Stopping(v1.train.SessionRunHook):
    """Hook that asks the session to stop after some batches."""

    def __init__(self, after: int) -> None:
        self.after = after

    def begin(self) -> None:
        self.batches = 0

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.batches += 1
        if self.batches == self.after:
            run_context.request_stop()


class Serving(Line):
    def build_serving_input_receiver_fns(self) -> Any:
        make = tf.estimator.export.build_raw_serving_input_receiver_fn
        return {"raw": make({"x": v1.placeholder(tf.float32, [None, 1])})}


class Averaged(Serving):
    """Trial that is validated with an average of its weights."""

    exported = tf.estimator.ModeKeys.PREDICT
    """Mode, beside that of the evaluation, that restores the average."""

    def model(self, features: Any, labels: Any, mode: str, params: Any) -> Any:
        spec = super().model(features, labels, mode, params)
        average = v1.train.ExponentialMovingAverage(0.5)
        if mode == tf.estimator.ModeKeys.TRAIN:
            with tf.control_dependencies([spec.train_op]):
                return spec._replace(train_op=average.apply(v1.trainable_variables()))
        if mode not in (tf.estimator.ModeKeys.EVAL, self.exported):
            return spec
        return spec._replace(scaffold=v1.train.Scaffold(saver=v1.train.Saver(average.variables_to_restore())))


def directory(harness: TrialHarness, trial_id: int) -> Path:
    checkpoint = harness.checkpoints(trial_id)[-1]
    return Path(checkpoint.storage["container_path"], checkpoint.uuid)


def test_importing_the_package_imports_no_tensorflow() -> None:
    check = "import sys, det_estimator; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], timeout=60).returncode == 0
    assert [name for name in det_estimator.__all__ if not hasattr(det_estimator, name)] == []
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = det_estimator.Nothing


def test_hooks_are_called_in_order(make_laboratory: MakeLaboratory) -> None:
    noting = Noting()
    harness = make_laboratory(type("Noted", (Line,), {"hooks": [noting]}))
    trial_id = harness.prepare(length={"batches": 2})
    harness.train(trial_id)
    assert noting.calls == ["batch", "batch", "checkpoint", "end", "close"]
    assert (directory(harness, trial_id) / "mine.txt").read_text() == "kept"
    noting.calls.clear()
    harness.train(trial_id)
    assert noting.calls == ["load", "end", "close"]


def test_a_hook_may_stop_the_trial(make_laboratory: MakeLaboratory) -> None:
    """The current scheduling unit of four batches is finished and reported."""
    harness = make_laboratory(type("Stopped", (Line,), {"hooks": [Stopping(3)]}))
    trial_id = harness.prepare(length={"batches": 6})
    harness.train(trial_id)
    assert harness.checkpoints(trial_id)[-1].steps_completed == 4
    assert [report.steps_completed for report in harness.store.metrics(trial_id, group="training")] == [4]
    assert harness.store.run(trial_id, 1).early_exit == EarlyExitReason.USER_REQUESTED_STOP.value


def test_a_hook_of_the_validation_may_stop_the_trial(make_laboratory: MakeLaboratory) -> None:
    """The validation is finished, over all three batches."""

    class Stopped(Line):
        def build_validation_spec(self) -> Any:
            return tf.estimator.EvalSpec(self.data, hooks=[Stopping(2)])

    harness = make_laboratory(Stopped, min_validation_period={"batches": 2})
    trial_id = harness.prepare(length={"batches": 6})
    harness.train(trial_id)
    assert harness.checkpoints(trial_id)[-1].steps_completed == 2
    (validation,) = harness.store.metrics(trial_id, group="validation")
    weights = tf_weights(directory(harness, trial_id))
    (weight,) = (value for name, value in weights.items() if name.endswith("dense/kernel"))
    assert validation.metrics["error"] == pytest.approx(np.abs(INPUTS * (weight - 2)).mean(), rel=1e-5)
    assert harness.store.run(trial_id, 1).early_exit == EarlyExitReason.USER_REQUESTED_STOP.value


def test_an_exported_model_can_be_loaded(make_laboratory: MakeLaboratory, graph: Any) -> None:
    harness = make_laboratory(Serving)
    trial_id = harness.prepare(length={"batches": 2})
    harness.train(trial_id)
    path = directory(harness, trial_id)
    (weight,) = (value for name, value in tf_weights(path).items() if name.endswith("kernel"))
    model = load_estimator_from_checkpoint_path(str(path))
    outputs = model.signatures["serving_default"](tf.constant([[3.0]]))
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        assert session.run(outputs["guess"]) == pytest.approx(3 * weight)
    assert [file.parts[-3] for file in path.glob("**/saved_model.pb")] == ["raw"]


def tf_weights(path: Path) -> dict[str, Any]:
    reader = tf.train.load_checkpoint(str(path))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def test_loading_a_checkpoint_requires_exactly_one_export(tmp_path: Path) -> None:
    with pytest.raises(InvalidTrial, match="found: none"):
        load_estimator_from_checkpoint_path(str(tmp_path))
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "saved_model.pb").touch()
    with pytest.raises(InvalidTrial, match="found: a, b"):
        load_estimator_from_checkpoint_path(str(tmp_path))


def test_a_warm_start_needs_only_the_weights(make_laboratory: MakeLaboratory) -> None:
    class Momentum(Line):
        def model(self, features: Any, labels: Any, mode: str, params: Any) -> Any:
            spec = super().model(features, labels, mode, params)
            if mode == tf.estimator.ModeKeys.TRAIN:
                optimizer = v1.train.MomentumOptimizer(0.001, 0.9)
                spec = spec._replace(train_op=optimizer.minimize(spec.loss, v1.train.get_global_step()))
            return spec

    harness = make_laboratory(Line)
    source, trial_id = harness.prepare(), harness.prepare(length={"batches": 1})
    harness.train(source)
    uuid = harness.checkpoints(source)[-1].uuid
    make_laboratory(Momentum).train(trial_id, latest=uuid)
    assert tf_weights(directory(harness, trial_id))["global_step"] == 1
    with pytest.raises(InvalidTrial, match=r"dense/kernel, which is \[1, 2\] here and \[1, 1\] there"):
        make_laboratory(type("Wide", (Line,), {"width": 2})).train(harness.prepare(), latest=uuid)


def test_the_log_names_skipped_metrics_and_ignored_settings(
    make_laboratory: MakeLaboratory, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    class Long(Line):
        def build_train_spec(self) -> Any:
            return tf.estimator.TrainSpec(self.data, max_steps=1000)

    caplog.set_level(logging.INFO, "det.estimator")
    harness = make_laboratory(Long, min_validation_period={"batches": 1}, records_per_epoch=8)
    trial_id = harness.prepare(length={"epochs": 2})
    harness.train(trial_id)
    assert harness.checkpoints(trial_id)[-1].steps_completed == 4
    *_, last = harness.store.metrics(trial_id, group="validation")
    assert set(last.metrics) == {"error", "loss", "global_step"}
    assert caplog.text.count("not reported: kind") == 1
    assert caplog.text.count("max_steps of the TrainSpec is ignored") == 1
    assert {file.parent.name for file in tmp_path.glob("c/**/events*")} >= {"eval"}


def test_arrays_are_reported_as_their_means(make_laboratory: MakeLaboratory, caplog: pytest.LogCaptureFixture) -> None:
    """This holds for tensor summaries in training and for arrays among validation metrics."""

    class Arrays(Line):
        def model(self, features: Any, labels: Any, mode: str, params: Any) -> Any:
            spec = super().model(features, labels, mode, params)
            v1.summary.tensor_summary("inputs", features["x"])
            v1.summary.text("note", tf.constant("not a metric"))
            columns = v1.metrics.mean_tensor(tf.reduce_sum(features["x"] * [[1.0, 3.0]], 0))
            return spec._replace(eval_metric_ops={**spec.eval_metric_ops, "columns": columns})

    harness = make_laboratory(Arrays)
    trial_id = harness.prepare(length={"batches": 3})
    harness.train(trial_id)
    training, validation = harness.store.metrics(trial_id)
    assert [row["inputs"]["max"] for row in training.batch_metrics or ()] == INPUTS.reshape(3, 4).max(1).tolist()
    assert training.metrics["inputs"] == INPUTS.mean()
    assert validation.metrics["columns"] == pytest.approx(2 * INPUTS.sum() / 3)
    assert caplog.text.count("'note'") == 1


def unwrapped(trial: Any) -> Any:
    return records().batch(4)


def tensors(trial: Any) -> Any:
    return {"x": tf.constant([[1.0]])}, tf.constant([[1.0]])


def empty(trial: Any) -> Any:
    return trial.context.wrap_dataset(records(0)).batch(4)


def strategy(trial: Any) -> Any:
    config = tf.estimator.RunConfig(train_distribute=tf.distribute.OneDeviceStrategy("cpu:0"))
    return tf.estimator.Estimator(trial.model, config=config)


def canned(trial: Any) -> Any:
    return tf.estimator.LinearRegressor([tf.feature_column.numeric_column("x")], optimizer="Ftrl")


def build_validation_spec(trial: Any) -> Any:
    return 3


TWICE = {"optimizations": {"aggregation_frequency": 2}}
MISTAKES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "no wrap_dataset": ({"data": unwrapped}, {}, r"dataset = self\.context\.wrap_dataset\(dataset\)"),
    "tensors": ({"data": tensors}, {}, "the TrainSpec returned a tuple; expected a tf.data.Dataset"),
    "no records": ({"data": empty}, {}, "the training data ended at batch 0"),
    "a strategy": ({"build_estimator": strategy}, {}, "RunConfig sets train_distribute; remove it"),
    "the name of an optimizer": (
        {"build_estimator": canned},
        TWICE,
        "no optimizer was passed to context.wrap_optimizer",
    ),
    "no spec": (
        {"build_validation_spec": build_validation_spec},
        {},
        r"returned 3; expected a tf\.estimator\.EvalSpec",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_explained(make_laboratory: MakeLaboratory, mistake: str) -> None:
    changes, config, said = MISTAKES[mistake]
    harness = make_laboratory(type("Mistaken", (Line,), changes), **config)
    with pytest.raises(InvalidTrial, match=said):
        harness.train(harness.prepare())


def test_empty_validation_data_is_an_error(make_laboratory: MakeLaboratory) -> None:
    def build(trial: Any) -> Any:
        return tf.estimator.EvalSpec(lambda: empty(trial))

    harness = make_laboratory(type("Unvalidated", (Line,), {"build_validation_spec": build}))
    with pytest.raises(InvalidTrial, match="the validation data has no batch"):
        harness.train(harness.prepare(length={"batches": 1}))


def test_a_context_for_debugging_returns_its_arguments(context: EstimatorTrialContext, graph: Any) -> None:
    dataset, optimizer = records(), v1.train.AdamOptimizer()
    assert context.wrap_dataset(dataset, shard_dataset=False) is dataset
    assert context.wrap_optimizer(optimizer) is optimizer
    trial = Line(context)
    estimator = trial.build_estimator()
    estimator.train(trial.data, steps=2)
    assert estimator.evaluate(trial.data)["global_step"] == 2
    with pytest.raises(InvalidTrial, match="has no TensorBoard directory"):
        context.get_tensorboard_path()
    assert context.wrap_optimizer(None) is None
    assert context.experimental.make_metric == context.make_metric


def test_a_slot_has_its_own_gpu(
    context: EstimatorTrialContext, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    context = EstimatorTrialContext.from_config(
        {**context.get_experiment_config(), "resources": {"slots_per_trial": 2}}
    )
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["GPU 0", "GPU 1"])
    monkeypatch.setattr(context, "get_tensorboard_path", lambda: tmp_path)
    context.distributed = SimpleNamespace(local_rank=1, size=2)  # type: ignore[assignment]
    estimator = EstimatorSpecs.of(Line(context), context).rebuilt(lambda spec: spec)
    assert estimator._session_config.gpu_options.visible_device_list == "1"
    assert estimator._session_config.allow_soft_placement


@pytest.mark.parametrize(("text", "error"), [("[]", CheckpointCorrupt), ("{", CheckpointCorrupt), ("{}", InvalidTrial)])
def test_a_malformed_state_file_is_rejected(tmp_path: Path, text: str, error: type[Exception]) -> None:
    (tmp_path / "estimator_state.json").write_text(text)
    with pytest.raises(error, match="is damaged|has format None"):
        _read_state(tmp_path)


KERNEL, AVERAGE = "dense/kernel", "dense/kernel/ExponentialMovingAverage"


@pytest.mark.parametrize("exported", [tf.estimator.ModeKeys.PREDICT, ""])
def test_a_saved_model_has_the_validated_weights_or_loading_it_says_that_it_has_others(
    make_laboratory: MakeLaboratory, caplog: pytest.LogCaptureFixture, exported: str
) -> None:
    harness = make_laboratory(type("Exported", (Averaged,), {"exported": exported}))
    trial_id = harness.prepare(length={"batches": 3})
    harness.train(trial_id)
    path = directory(harness, trial_id)
    kernel, average = (tf_weights(path)[name] for name in (KERNEL, AVERAGE))
    assert kernel != average
    model = load_estimator_from_checkpoint_path(str(path))
    outputs = model.signatures["serving_default"](tf.constant([[1.0]]))
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        assert session.run(outputs["guess"]) == pytest.approx(average if exported else kernel)
    [report] = harness.store.metrics(trial_id, group="validation")
    assert report.metrics["error"] == pytest.approx(np.abs(INPUTS * (average - 2)).mean())
    warnings = [message for message in caplog.messages if "the SavedModel has the weights of the training" in message]
    assert all(f"{KERNEL} from {AVERAGE}" in warning for warning in warnings)
    assert len(warnings) == (0 if exported else 2), "expected one at the first export, and one at the load"


def test_a_warm_start_takes_the_average_or_begins_it_with_the_weights(make_laboratory: MakeLaboratory) -> None:
    with_average, without = make_laboratory(Averaged), make_laboratory(Serving)
    for source in (with_average, without):
        first = source.prepare(length={"batches": 3})
        source.train(first)
        begun = tf_weights(directory(source, first))[AVERAGE if source is with_average else KERNEL]
        second = with_average.prepare(length={"batches": 1}, seed=9)
        with_average.train(second, latest=source.checkpoints(first)[-1].uuid)
        average = tf_weights(directory(with_average, second))[AVERAGE]
        assert average == pytest.approx(begun, abs=0.01)
