"""Metrics, callbacks, errors and loading of trials in one process."""

from __future__ import annotations

import importlib.util
import json
import logging
import re
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import det_keras
import numpy as np
import pytest
import tensorflow as tf
import yaml
from det_keras import TFKerasTrial, TFKerasTrialContext, callbacks
from det_keras._adapter import KerasAdapter
from det_keras._checkpoint import read_state
from det_keras._metrics import reduce_over_slots
from det_keras._session_config import apply_session_config

from det_core.core import DistributedContext
from det_core.errors import CheckpointCorrupt, InvalidExperimentException, InvalidTrial, UntrustedCheckpoint
from det_core.trial import trial_description
from tests.comm.job import free_port

pytestmark = pytest.mark.integration

EXAMPLE = Path(__file__).parents[3] / "examples" / "iris_keras"
README = Path(__file__).parents[1] / "README.md"
X = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
Y = (X.sum(axis=1) > 0).astype(np.float32)
WEIGHTS = np.linspace(1, 2, 20, dtype=np.float32)
LOADERS = ("build_training_data_loader", "build_validation_data_loader")
Make = Callable[..., Any]


class Trial(TFKerasTrial):
    """Trial with five batches of four. Its attributes vary from test to test.

    It runs eagerly, which takes less time for a few batches than making a graph.
    """

    optimizer: Any = "sgd"
    compiled = True
    eagerly = True
    callbacks: tuple[Any, ...] = ()

    def build_model(self) -> tf.keras.Model:
        model = tf.keras.Sequential([tf.keras.layers.Dense(1, activation="sigmoid", input_shape=(2,))])
        model = self.context.wrap_model(model)
        if self.compiled:
            metrics = ["accuracy", tf.keras.metrics.AUC(name="auc")]
            model.compile(
                self.optimizer, "binary_crossentropy", metrics, weighted_metrics=["mae"], run_eagerly=self.eagerly
            )
        return model

    def build_training_data_loader(self) -> Any:
        return X, Y[:, None], WEIGHTS

    build_validation_data_loader = build_training_data_loader

    def keras_callbacks(self) -> list[Any]:
        return [*self.callbacks]


def begin(context: TFKerasTrialContext, **attributes: Any) -> KerasAdapter:
    trial = Trial(context)
    vars(trial).update(attributes)
    adapter = KerasAdapter(trial, context)
    adapter.started()
    return adapter


def never() -> bool:
    return False


def test_metrics_equal_those_of_keras(make_context: Make) -> None:
    adapter = begin(context_of_fixed_order(make_context), eagerly=False)
    model = adapter._model
    alone = model.evaluate(X[:4], Y[:4, None], sample_weight=WEIGHTS[:4], verbose=0, return_dict=True)
    first, second = adapter.train(2, never)
    assert first == pytest.approx(alone, rel=1e-5)
    alone = model.evaluate(X[4:8], Y[4:8, None], sample_weight=WEIGHTS[4:8], verbose=0, return_dict=True)
    assert second["loss"] == pytest.approx(alone["loss"], rel=0.05), "metrics of this batch only"
    validated = adapter.validate(never)
    evaluated = model.evaluate(X, Y[:, None], sample_weight=WEIGHTS, batch_size=4, verbose=0, return_dict=True)
    assert validated == {f"val_{name}": value for name, value in evaluated.items()}


def context_of_fixed_order(make_context: Make) -> TFKerasTrialContext:
    context = make_context()
    context.configure_fit(shuffle=False)
    return context


def test_metrics_of_slots_are_merged_into_those_of_the_whole_set(make_context: Make) -> None:
    model = Trial(make_context()).build_model()
    whole = model.evaluate(X, Y[:, None], sample_weight=WEIGHTS, batch_size=4, verbose=0, return_dict=True)

    def share(part: slice, others: list[Any]) -> tuple[Any, dict[str, Any]]:
        """Return what this slot sends, and the merged metrics."""
        sent: list[Any] = []

        def allgather(own: Any) -> list[Any]:
            sent.append(own)
            return [*others, (0, [[], {}]), own] if len(sent) == 1 else [({}, None), own]

        data = X[part], Y[part, None]
        logs = model.evaluate(*data, sample_weight=WEIGHTS[part], batch_size=4, verbose=0, return_dict=True)
        mine = {"mine": len(data[0]), "both": [1.0, len(data[0])]}
        slots: Any = SimpleNamespace(size=3, rank=2, allgather=allgather, broadcast=None)
        merged = reduce_over_slots(model, {**logs, **mine}, 2, slots)
        return sent[0], merged

    first, _ = share(slice(0, 13), [])
    _, merged = share(slice(13, 20), [first])
    assert (merged.pop("mine"), merged.pop("both")) == (10, [1, 10])
    assert merged == pytest.approx(whole, rel=1e-6)


class Arrays(tf.keras.Sequential):  # type: ignore[misc]
    """Model whose steps return arrays, variables and text."""

    def train_step(self, data: Any) -> Any:
        x, *_ = data
        return {**super().train_step(data), "inputs": x, "rate": self.optimizer.learning_rate, "name": tf.constant("a")}

    def test_step(self, data: Any) -> Any:
        x, *_ = data
        return {
            **super().test_step(data),
            "sums": tf.reduce_sum(x, 0),
            "one": x[:1, 0],
            "two": [x[0], x[0, :1]],
            "name": tf.constant("a"),
        }


@pytest.mark.parametrize("eagerly", [False, True])
def test_metrics_may_be_arrays_and_text(make_context: Make, eagerly: bool) -> None:
    """Callbacks get means over the batches and elements of an epoch, and NumPy arrays from a validation."""
    context, notes = context_of_fixed_order(make_context), Notes()
    notes.on_test_end = lambda logs: vars(notes).update(test=logs)  # type: ignore[method-assign, assignment]

    def build_model() -> tf.keras.Model:
        model = context.wrap_model(Arrays([tf.keras.layers.Dense(1, activation="sigmoid", input_shape=(2,))]))
        model.compile(tf.keras.optimizers.SGD(0.5), "binary_crossentropy", run_eagerly=eagerly)
        return model

    adapter = begin(context, build_model=build_model, callbacks=(notes,))
    rows = adapter.train(5, never)
    assert [row["inputs"] for row in rows] == X.reshape(5, 4, 2).tolist()
    assert {(row["rate"], row["name"]) for row in rows} == {(0.5, "a")}
    assert notes.epoch["inputs"] == pytest.approx(X.mean())
    metrics = adapter.validate(never)
    assert metrics is not None
    assert (metrics["val_sums"], metrics["val_one"]) == (pytest.approx(X[16:].sum(0)), X[16, 0])
    assert metrics["val_name"] == "a"
    assert notes.test["val_sums"].shape == (2,)
    assert notes.test["val_two"] == metrics["val_two"]


def test_two_slots_share_metrics_and_checkpoints(make_context: Make, tmp_path: Path) -> None:
    """No backend exchanges gradients here. The test checks what det itself exchanges."""
    weights, port = [np.array([[1.0], [-0.5]]), np.array([0.1])], free_port()

    def slot(rank: int) -> Any:
        place = {"rank": rank, "local_rank": rank, "size": 2, "local_size": 2, "cross_rank": 0, "cross_size": 1}
        with closing(DistributedContext(**place, pub_port=port, timeout=60)) as ranks:
            context = make_context(distributed=ranks)
            adapter = begin(context, optimizer=context.wrap_optimizer(tf.keras.optimizers.SGD(0.0)))
            adapter._model.set_weights(weights)
            adapter.train(2, never)
            write, metrics = adapter.snapshot(), adapter.validate(never)
            if rank == 0:
                write(tmp_path)
            return metrics

    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(slot, range(2))
    alone = begin(make_context(), optimizer=tf.keras.optimizers.SGD(0.0))
    alone._model.set_weights(weights)
    assert first == second == pytest.approx(alone.validate(never), rel=1e-6)
    alone.load(tmp_path, batches_trained=2)
    assert alone._stream.state() == {"passes": 0, "into": 2}


class Notes(callbacks.Callback):
    """Callback that records its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Any] = []

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if not name.startswith("on_"):
            return value

        def note(*arguments: Any, **named: Any) -> Any:
            self.calls.append((name, *(one for one in arguments if isinstance(one, int))))
            return value(*arguments, **named)

        return note

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        assert logs["loss"] > 0

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.epoch = logs

    def on_test_end(self, logs: Any = None) -> None:
        assert set(logs) == {"val_loss", "val_accuracy", "val_auc", "val_mae"}


def test_callbacks_are_called_in_order(make_context: Make, tmp_path: Path) -> None:
    notes, context = Notes(), make_context()
    adapter = begin(context, callbacks=(notes,))
    rows = [*adapter.train(4, never), *adapter.train(2, never)]
    adapter.reported({"loss": 1.0}, rows)
    adapter.validate(never)
    adapter.snapshot()(tmp_path)
    adapter.close()
    named = [call for call in notes.calls if "batch" not in call[0]]
    assert named == [
        ("on_train_begin",),
        ("on_train_workload_begin", 0, 4),
        ("on_epoch_begin", 0),
        ("on_epoch_end", 0),
        ("on_epoch_begin", 1),
        ("on_train_workload_end", 6),
        ("on_test_begin",),
        ("on_test_end",),
        ("on_checkpoint_end",),
        ("on_train_end",),
    ]
    assert [number for name, number in [c for c in notes.calls if len(c) == 2] if name == "on_train_batch_end"] == [
        *(0, 1, 2, 3, 4, 0)
    ]
    assert notes.epoch["loss"] == pytest.approx(np.mean([row["loss"] for row in rows[:5]]))


def test_weights_that_a_callback_exchanges_for_a_validation_are_in_no_checkpoint(make_context: Make) -> None:
    """A stop during the validation waits for ``on_test_end``, which restores the weights."""

    class Averages(tf.keras.callbacks.Callback):  # type: ignore[misc]
        def on_test_begin(self, logs: Any = None) -> None:
            self.kept = self.model.get_weights()
            self.model.set_weights([value + 1 for value in self.kept])

        def on_test_end(self, logs: Any = None) -> None:
            self.model.set_weights(self.kept)

    asked: list[int] = []
    counter = tf.keras.callbacks.Callback()
    counter.on_test_batch_end = lambda batch, logs=None: asked.append(batch)
    adapter = begin(make_context(), callbacks=(Averages(), counter))
    before = adapter._model.get_weights()
    assert adapter.validate(lambda: bool(asked))
    assert len(asked) == 5
    for value, expected in zip(adapter._model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(value, expected)
    assert adapter.validate(lambda: True) is None


def test_plateau_and_early_stopping_callbacks_are_resumed(make_context: Make, tmp_path: Path) -> None:
    def make() -> tuple[Any, Any, KerasAdapter]:
        stopping = callbacks.EarlyStopping(monitor="val_auc", mode="max", patience=3)
        slower = callbacks.ReduceLROnPlateau(monitor="loss", min_delta=1e9, factor=0.5, patience=2)
        optimizer = tf.keras.optimizers.SGD(0.0)
        return stopping, slower, begin(make_context(), callbacks=(stopping, slower), optimizer=optimizer)

    stopping, slower, adapter = make()
    adapter._model.optimizer.learning_rate.assign(1e-9)
    for _ in range(3):
        adapter.train(1, never)
        adapter.validate(never)
    adapter.snapshot()(tmp_path)
    assert (stopping.wait, slower.wait) == (2, 0)
    resumed_stopping, resumed_slower, resumed = make()
    resumed.load(tmp_path, batches_trained=3)
    resumed.started()
    assert resumed_stopping.get_state() == stopping.get_state()
    assert resumed_slower.get_state() == slower.get_state()
    assert float(resumed._model.optimizer.learning_rate) == pytest.approx(5e-10)
    resumed.validate(never)
    assert resumed._context.get_stop_requested()


def test_loss_scales_are_resumed(make_context: Make, tmp_path: Path) -> None:
    """The checkpoint is between two updates of aggregated gradients, and between two increases of the scale."""

    def make() -> KerasAdapter:
        context = make_context(optimizations={"aggregation_frequency": 2})
        inner = context.wrap_optimizer(tf.keras.optimizers.SGD(0.1))
        scaling = tf.keras.mixed_precision.LossScaleOptimizer(inner, initial_scale=8, dynamic_growth_steps=2)
        return begin(context, optimizer=scaling)

    adapter = make()
    adapter.train(7, never)
    adapter.snapshot()(tmp_path)
    resumed = make()
    resumed.load(tmp_path, batches_trained=7)
    resumed.started()
    assert adapter.train(3, never) == resumed.train(3, never)
    assert [float(one._model.optimizer.loss_scale) for one in (adapter, resumed)] == [32.0, 32.0]
    for mine, theirs in zip(adapter._model.get_weights(), resumed._model.get_weights(), strict=True):
        assert np.array_equal(mine, theirs)


def test_a_callback_that_sets_stop_training_stops_the_trial_after_the_step(make_context: Make) -> None:
    """This holds even if the next batch resets it, because Keras itself would have stopped by then."""
    stops = tf.keras.callbacks.LambdaCallback()
    stops.on_train_batch_end = lambda batch, logs=None: setattr(stops.model, "stop_training", batch == 1)
    context = make_context()
    assert len(begin(context, callbacks=(stops,)).train(5, never)) == 5
    assert context.get_stop_requested()


@pytest.mark.parametrize(
    ("attributes", "config", "message"),
    [
        ({"compiled": False}, {}, r"model\.compile\(optimizer, loss\)"),
        ({}, {"optimizations": {"aggregation_frequency": 2}}, r"self\.context\.wrap_optimizer"),
        ({"callbacks": (3,)}, {}, "expected tf.keras.callbacks.Callback"),
        ({"build_model": lambda: tf.keras.Sequential()}, {}, r"self\.context\.wrap_model\(model\)"),
        ({"optimizer": tf.compat.v1.train.AdamOptimizer()}, {}, r"v1\.train\.AdamOptimizer, .*legacy\.Adam\(\)"),
        ({"build_training_data_loader": lambda: [X, Y]}, {}, r"training_data_loader\(\) returned a list; .* \(x, y\)"),
    ],
)
def test_errors_name_the_missing_call(make_context: Make, attributes: Any, config: Any, message: str) -> None:
    with pytest.raises(InvalidTrial, match=message):
        begin(make_context(**config), **attributes)


def test_a_rate_that_keras_would_ignore_is_refused() -> None:
    with pytest.raises(InvalidTrial, match=r"write SGD\(learning_rate=0.5\)"):
        tf.keras.optimizers.SGD(lr=0.5)


@pytest.mark.parametrize("build", LOADERS)
@pytest.mark.parametrize("parts", [(X, Y), (X, Y[:, None]), X], ids=["scalars", "columns", "inputs"])
def test_a_dataset_of_single_records_is_refused(make_context: Make, build: str, parts: Any) -> None:
    context = make_context()
    dataset = context.wrap_dataset(tf.data.Dataset.from_tensor_slices(parts), shard_dataset=False)
    _, kind, _ = build.split("_", 2)
    with pytest.raises(InvalidTrial, match=rf"build_{kind}_data_loader.*\.batch\(self\.context\.get_per_slot"):
        begin(context, **{build: lambda: dataset})


def test_batches_of_numbers_are_columns(make_context: Make) -> None:
    context = make_context()

    def build_model() -> tf.keras.Model:
        model = context.wrap_model(tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(1,))]))
        model.compile("sgd", "mse")
        return model

    dataset = context.wrap_dataset(tf.data.Dataset.from_tensor_slices((X[:, 0], Y))).batch(4)
    assert begin(context, build_model=build_model, **dict.fromkeys(LOADERS, lambda: dataset)).train(5, never)


class TwoOptimizers(tf.keras.Model):  # type: ignore[misc]
    """Model with an optimizer per layer, on records that are no batches for Keras."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = tf.keras.layers.Dense(2), tf.keras.layers.Dense(1)

    def compile(self, first: Any, last: Any) -> None:
        super().compile()
        self.first_optimizer, self.last_optimizer = first, last

    def call(self, inputs: Any) -> Any:
        return self.last(self.first(inputs))

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_mean((self(data[None], training=True) - 1) ** 2)
        for layer, optimizer in ((self.first, self.first_optimizer), (self.last, self.last_optimizer)):
            optimizer.minimize(loss, layer.trainable_variables, tape=tape)
        return {"loss": loss}

    def test_step(self, data: Any) -> Any:
        return {"loss": tf.reduce_mean(self(data[None]))}


def test_a_model_may_have_several_optimizers(make_context: Make, tmp_path: Path) -> None:
    """They are aggregated and resumed, and none of them is the one of ``compile``. The model reads single records."""

    def make() -> KerasAdapter:
        tf.keras.utils.set_random_seed(3)
        context = make_context(optimizations={"aggregation_frequency": 2})

        def build_model() -> tf.keras.Model:
            model = context.wrap_model(TwoOptimizers())
            model.compile(*(context.wrap_optimizer(tf.keras.optimizers.Adam(0.1)) for _ in range(2)))
            return model

        dataset = context.wrap_dataset(tf.data.Dataset.from_tensor_slices(X))
        return begin(context, build_model=build_model, **dict.fromkeys(LOADERS, lambda: dataset))

    adapter = make()
    adapter.train(3, never)
    adapter.snapshot()(tmp_path)
    resumed = make()
    resumed.load(tmp_path, batches_trained=3)
    resumed.started()
    assert adapter.train(4, never) == resumed.train(4, never)
    assert adapter.validate(never) == resumed.validate(never)


def test_a_process_without_eager_execution_is_refused() -> None:
    with tf.Graph().as_default(), pytest.raises(InvalidTrial, match="a TFKerasTrial needs eager execution"):
        TFKerasTrialContext.from_config({"entrypoint": "model_def:Trial"})


def test_weights_are_not_restored_by_a_callback(make_context: Make, caplog: pytest.LogCaptureFixture) -> None:
    stopping = callbacks.EarlyStopping("val_loss", mode="max", patience=1, restore_best_weights=True)
    adapter = begin(make_context(), callbacks=(stopping,), optimizer=tf.keras.optimizers.SGD(0.1))
    assert "restore_best_weights=True" in caplog.text
    adapter.validate(never)
    adapter.train(5, never)
    before = adapter._model.get_weights()
    adapter.validate(never)
    assert adapter._context.get_stop_requested()
    assert all(map(np.array_equal, adapter._model.get_weights(), before))


def test_warnings_name_ignored_settings_and_unsuitable_callbacks(
    make_context: Make, caplog: pytest.LogCaptureFixture
) -> None:
    early = tf.keras.callbacks.EarlyStopping()
    begin(make_context(), callbacks=(early,))
    apply_session_config(tf.compat.v1.ConfigProto(allow_soft_placement=True, log_device_placement=True))
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert ["use det_keras.callbacks.EarlyStopping" in warnings[0], "log_device_placement" in warnings[1]] == [True] * 2
    assert "allow_soft_placement" not in warnings[1]


def test_a_checkpoint_of_another_model_is_rejected(make_context: Make, tmp_path: Path) -> None:
    begin(make_context()).snapshot()(tmp_path)
    other = begin(make_context(), optimizer=tf.keras.optimizers.Adam())
    with pytest.raises(InvalidTrial, match="does not fit the trial"):
        other.load(tmp_path, batches_trained=1)
    other.load(tmp_path, batches_trained=0)  # the weights fit
    other._model.add(tf.keras.layers.Dense(1))
    with pytest.raises(InvalidTrial, match="2 weights, but the model has 4"):
        other.load(tmp_path, batches_trained=0)
    with pytest.raises(InvalidTrial, match=r"expected keras\.json"):
        other.load(tmp_path.parent, batches_trained=1)


def test_exceptions_of_a_sequence_reach_the_caller(make_context: Make) -> None:
    class Broken(tf.keras.utils.Sequence):  # type: ignore[misc]
        def __len__(self) -> int:
            return 6

        def __getitem__(self, index: int) -> Any:
            if 0 < index < 5:
                raise KeyError("the file of this batch")
            return X[:4], Y[:4, None]

    adapter = begin(context_of_fixed_order(make_context), build_training_data_loader=Broken)
    with pytest.raises(KeyError, match="the file of this batch"):
        adapter.train(2, never)


def test_the_example_trains() -> None:
    spec = importlib.util.spec_from_file_location("iris_model_def", EXAMPLE / "model_def.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = yaml.safe_load((EXAMPLE / "const.yaml").read_text())
    context = TFKerasTrialContext.from_config(config)
    adapter = KerasAdapter(module.IrisTrial(context), context)
    adapter.started()
    adapter.train(10 * adapter.batches_per_epoch, never)
    metrics = adapter.validate(never)
    assert metrics["val_accuracy"] > 0.85


def test_the_snippets_of_the_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trial, loading, plainly = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    namespace: dict[str, Any] = {}
    exec(trial, namespace)
    namespace["MyTrial"].__module__ = "model_def"
    config = {"hyperparameters": {"global_batch_size": 32, "lr": 0.01}}
    context = TFKerasTrialContext.from_config(config)
    made = namespace["MyTrial"](context)
    model = made.build_model()  # as when trying a trial out
    model.fit(made.build_training_data_loader(), verbose=0)
    assert model.evaluate(*made.build_validation_data_loader(), verbose=0)
    context = TFKerasTrialContext.from_config(config)
    description = {"trial_cls_spec": "model_def:MyTrial", "hparams": {"lr": 0.01}, "experiment_config": {}}
    adapter = KerasAdapter(namespace["MyTrial"](context), context, description=description)
    adapter.started()
    adapter.train(2, never)
    (tmp_path / "checkpoint").mkdir()
    adapter.snapshot()(tmp_path / "checkpoint")
    exec(loading, namespace)
    exec(plainly, namespace)
    assert namespace["scores"].shape == (1, 10)
    for loaded in (namespace["model"], namespace["plain"]):
        for weights, own in zip(loaded.get_weights(), context._model.get_weights(), strict=True):
            assert np.array_equal(weights, own)


HELD = """
from det_keras import TFKerasTrial
import tensorflow as tf
from held_size import SIZE

class Held(TFKerasTrial):
    def build_model(self):
        model = tf.keras.Sequential([tf.keras.layers.Dense(SIZE, input_shape=(self.context.get_hparam("width"),))])
        model.compile("sgd", "mse")
        return model

    build_training_data_loader = build_validation_data_loader = None
"""


def test_the_code_of_a_checkpoint_runs_if_it_is_trusted(make_context: Make, tmp_path: Path) -> None:
    """The code next to the weights builds the model."""
    begin(make_context()).snapshot()(tmp_path)
    trial_description.write_description({"trial_cls_spec": "held_def:Held", "hparams": {"width": 2}}, tmp_path)
    with pytest.raises(
        InvalidTrial, match=r"belongs to the trial 'held_def:Held', which cannot be imported.*trial_class=MyTr"
    ):
        det_keras.load_model_from_checkpoint_path(tmp_path, trust=True)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "held_def.py").write_text(HELD)
    (tmp_path / "code" / "held_size.py").write_text("SIZE = 1")
    with pytest.raises(UntrustedCheckpoint, match=r"code of its trial 'held_def:Held'.*trial_class=MyTr.*trust=True"):
        det_keras.load_model_from_checkpoint_path(tmp_path)
    model = det_keras.load_model_from_checkpoint_path(tmp_path, trust=True)
    assert [weight.shape.as_list() for weight in model.weights] == [[2, 1], [1]]
    assert not {"held_def", "held_size"} & sys.modules.keys()


class Averaging(callbacks.Callback):
    def get_state(self) -> Any:
        return {"average": [np.ones(2)]}


def test_arrays_of_callbacks_that_are_not_loaded_are_named(
    make_context: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    begin(make_context(), callbacks=(callbacks.EarlyStopping("loss"), Averaging())).snapshot()(tmp_path)
    det_keras.load_model_from_checkpoint_path(tmp_path, trial_class=Trial)
    [warning] = [message for message in caplog.messages if "are not loaded" in message]
    assert "the states of the callbacks Averaging hold arrays" in warning


def test_public_names_can_be_imported_and_are_listed() -> None:
    assert dir(det_keras) == sorted(det_keras.__all__)
    for name in det_keras.__all__:
        assert getattr(det_keras, name) is not None
    assert all(hasattr(det_keras.callbacks, name) for name in det_keras.callbacks.__all__)
    with pytest.raises(AttributeError, match="no attribute 'TFKeras'"):
        det_keras.TFKeras  # noqa: B018


class Old(TFKerasTrial):
    """Trial with the model of old/make.py."""

    def build_model(self) -> tf.keras.Model:
        layers = tf.keras.layers
        first, last = layers.Dense(2, input_shape=(3,)), layers.Dense(1)
        sequence = [first, layers.BatchNormalization(), layers.Dropout(0.1), last]
        model = self.context.wrap_model(tf.keras.Sequential(sequence))
        model.compile("adam", "mse")
        return model

    def build_training_data_loader(self) -> Any:
        return np.ones([4, 3]), np.ones([4, 1])

    build_validation_data_loader = build_training_data_loader


@pytest.mark.parametrize("release", ["0.13.7", "0.19.10"])
def test_the_original_systems_checkpoints_are_loaded(make_context: Make, release: str) -> None:
    """A trial continues with the weights and the optimizer, which it need not wrap.

    The first release saved whole models. The formats of the others are the subject of test_old_checkpoints.py.
    """
    path = Path(__file__).parent / "old" / release
    context = make_context()
    adapter = KerasAdapter(Old(context), context)
    adapter.load(path, batches_trained=0)
    loaded = det_keras.load_model_from_checkpoint_path(path, trial_class=Old)
    expected = json.loads((path / "expected.json").read_text())["weights"]
    for model in (context._model, loaded):
        assert [value.tolist() for value in model.get_weights()] == expected
    assert int(context._model.optimizer.iterations) == 5
    adapter.started()
    adapter.train(1, never)
    assert int(context._model.optimizer.iterations) == 6


class OldWithHyperparameter(Old):
    """Trial whose model depends on a hyperparameter."""

    def build_model(self) -> tf.keras.Model:
        assert self.context.get_per_slot_batch_size() == 4
        return super().build_model()


def test_hyperparameters_can_be_added_to_a_checkpoint_without_a_description(tmp_path: Path) -> None:
    shutil.copytree(Path(__file__).parent / "old" / "0.13.7", tmp_path, dirs_exist_ok=True)
    with pytest.raises(InvalidExperimentException, match="the hyperparameter global_batch_size is None"):
        det_keras.load_model_from_checkpoint_path(tmp_path, trial_class=OldWithHyperparameter)
    (tmp_path / "metadata.json").write_text('{"hparams": {"global_batch_size": 4}}')
    model = det_keras.load_model_from_checkpoint_path(tmp_path, trial_class=OldWithHyperparameter)
    expected = json.loads((tmp_path / "expected.json").read_text())["weights"]
    assert [value.tolist() for value in model.get_weights()] == expected


OLD_CODE = """
import tensorflow as tf
from det_keras import TFKerasTrial

class Trial(TFKerasTrial):
    def __init__(self, context):
        self.context = context
        self.context.env.container_gpus = []
        assert context.get_per_slot_batch_size() == context.env.hparams["global_batch_size"] == 4

    def build_model(self):
        layers = tf.keras.layers
        parts = [layers.Dense(2, input_shape=(3,)), layers.BatchNormalization(), layers.Dropout(0.1), layers.Dense(1)]
        model = self.context.wrap_model(tf.keras.Sequential(parts))
        model.compile("sgd", "mse")
        return model

    build_training_data_loader = build_validation_data_loader = None
"""


def test_the_class_and_the_hyperparameters_are_those_of_a_downloaded_checkpoint(tmp_path: Path) -> None:
    """Release 0.17.6 wrote them into ``metadata.json``."""
    shutil.copytree(Path(__file__).parent / "old" / "0.17.6", tmp_path, dirs_exist_ok=True)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "model_def.py").write_text(OLD_CODE)
    model = det_keras.load_model_from_checkpoint_path(tmp_path, trust=True)
    expected = json.loads((tmp_path / "expected.json").read_text())["weights"]
    assert [value.tolist() for value in model.get_weights()] == expected


@pytest.mark.parametrize(("text", "error"), [("[]", CheckpointCorrupt), ("{", CheckpointCorrupt), ("{}", InvalidTrial)])
def test_a_malformed_state_file_is_rejected(tmp_path: Path, text: str, error: type[Exception]) -> None:
    (tmp_path / "keras.json").write_text(text)
    with pytest.raises(error, match=str(tmp_path)):
        read_state(tmp_path)
