"""States, metrics and errors of trials in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("flax", reason="JAX is in an environment of its own, with which make test-jax runs these tests")

import det_jax
import jax
import jax.numpy as jnp
import numpy as np
from det_jax._adapter import JaxAdapter
from det_jax._state import ARRAYS, ArrayState, read_checkpoint
from flax import nnx

from det_core.errors import CheckpointCorrupt, InvalidTrial, UntrustedCheckpoint
from det_core.trial import TrialContext

from .tiny_trials import Functions, Objects

HPARAMS = {"global_batch_size": 4}


class Parts(NamedTuple):
    params: Any
    step: Any


class Constant(det_jax.JaxTrial):
    """Trial without a model. Its attributes vary from test to test."""

    state: Any = (np.zeros(2), 0)
    metrics: Any = None

    def initial_state(self, rng: jax.Array) -> Any:
        return self.state

    def train_step(self, state: Any, batch: Any, rng: jax.Array) -> Any:
        return state, self.metrics or {"batch": batch}

    def evaluate_step(self, state: Any, batch: Any, rng: jax.Array) -> Any:
        return {"mean": batch.mean(), "all": {"bright": jnp.ones(2, jnp.bfloat16) * batch.max()}}

    def build_training_data_loader(self) -> Any:
        return [np.arange(2), np.arange(2)]

    def build_validation_data_loader(self) -> Any:
        return det_jax.Arrays(np.arange(6))


def begin(trial_class: Any = Constant, **attributes: Any) -> JaxAdapter:
    context = TrialContext.from_config({"hyperparameters": HPARAMS})
    trial = type("Mine", (trial_class,), attributes)(context)
    return JaxAdapter(trial, context, {"hparams": HPARAMS, "trial_cls_spec": "model_def:Mine"})


def never() -> bool:
    return False


def save(adapter: JaxAdapter, path: Path) -> Path:
    adapter.snapshot()(make_directory(path))
    return path


def make_directory(path: Path) -> Path:
    path.mkdir()
    return path


def test_metrics_are_means_over_records() -> None:
    metrics = begin().validate(never)  # batches of 4 and 2 records
    assert metrics is not None
    assert (metrics["mean"], metrics["all"]["bright"].tolist()) == (2.5, [(3 * 4 + 5 * 2) / 6] * 2)


class Batches(Constant):
    """Trial whose validation batches have 4 and 2 records, and other arrays beside."""

    other: Any = np.ones(())

    def evaluate_step(self, state: Any, batch: Any, rng: jax.Array) -> Any:
        return {"mean": batch["records"].mean()}

    def build_validation_data_loader(self) -> Any:
        return [{"other": self.other, "records": np.arange(4)}, {"other": self.other, "records": np.arange(4, 6)}]


def test_the_records_of_a_batch_are_in_all_its_arrays(caplog: pytest.LogCaptureFixture) -> None:
    assert begin(Batches).validate(never) == {"mean": 2.5}
    assert not caplog.records
    assert begin(Batches, other=np.ones(3)).validate(never) == {"mean": (1.5 + 4.5) / 2}
    assert "of a validation batch have different first dimensions (3, 4)" in caplog.text


@pytest.mark.parametrize("metric", [lambda batch: batch, lambda batch: {str(len(batch)): 1}], ids=["shapes", "names"])
def test_validation_metrics_that_differ_between_batches_are_refused(metric: Any) -> None:
    with pytest.raises(InvalidTrial, match="returned other metrics, or other shapes, for some batches"):
        begin(evaluate_step=lambda self, state, batch, rng: {"x": metric(batch)}).validate(never)


def test_numbers_beside_objects_of_nnx_are_part_of_the_state() -> None:
    def train_step(self: Any, state: Any, batch: Any, rng: jax.Array) -> Any:
        model, counts = state
        return (model, {"steps": counts["steps"] + 1}), {}

    adapter = begin(state=(nnx.Linear(1, 1, rngs=nnx.Rngs(0)), {"steps": 0}), train_step=train_step)
    adapter.train(3, never)
    assert adapter._state.arrays()["rest/0/steps"] == 3


def test_training_metrics_keep_their_kind() -> None:
    metrics = {"a": True, "b": 2, "c": jnp.bfloat16(0.5), "d": jnp.arange(2, dtype=jnp.uint8)}
    (row,) = begin(metrics=metrics).train(1, never)
    assert [type(row[name]) for name in "abc"] == [bool, int, float]
    assert (row["d"].dtype, row["d"].tolist()) == (np.int64, [0, 1])


def test_a_named_tuple_stays_one_and_numbers_have_fixed_dtypes() -> None:
    state = ArrayState(Parts({"a": np.zeros((2, 1), np.float32)}, 3))
    assert state.merge(state.tree).step.weak_type is False
    assert [*state.arrays()] == ["rest/0", "weights/a"]
    assert isinstance(state.merge(state.tree), Parts)


def test_parts_may_share_arrays() -> None:
    shared = jnp.ones(2)
    adapter = begin(state=(shared, {"average": shared}))
    adapter.train(2, never)
    assert shared.tolist() == [1, 1], "the trial's own array was donated"


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        (
            {"state": {"params": 1}},
            r"initial_state\(\) returned dict; expected a tuple whose first part is the weights",
        ),
        ({"state": ({"a/b": 1, "a": {"b": 1}},)}, r"two arrays named weights/a/b; rename a key"),
        ({"state": ("text",)}, r"initial_state\(\) returned str as weights; expected an array"),
        ({"state": (2**70,)}, r"initial_state\(\) returned int as weights; expected an array"),
        ({"state": ({1: 1, "a": 1},)}, r"initial_state\(\) returned a state that JAX cannot use: .* keys"),
        ({"train_step": lambda self, state, *_: (("text", state[1]), {})}, r"train_step\(\) returned str as weights"),
        ({"metrics": {"loss": 1j}}, r"train_step\(\) returned complex64 as the metric loss; expected a real number"),
        ({"metrics": {"loss": {"all": None}}}, r"train_step\(\) returned NoneType as the metric loss.all"),
        ({"metrics": {"loss": {1: 1, "a": 1}}}, r"train_step\(\) returned metrics that JAX cannot use: .* keys"),
        ({"train_step": lambda *_: 1}, r"train_step\(\) returned .*; expected a pair"),
        ({"train_step": lambda self, state, *_: (state, [1])}, "list as metrics; expected a dict"),
        (
            {"train_step": lambda self, state, *_: ((state[0][:1], state[1]), {})},
            r"a state with weights: float32\[1\]; expected float32\[2\], as in the initial state",
        ),
        ({"train_step": lambda self, state, *_: (state[:1], {})}, r"with rest/0: nothing; expected int32\[\]"),
        ({"train_step": lambda self, state, *_: (state[0], {})}, "a state with"),
    ],
)
def test_errors_say_what_was_expected(attributes: Any, message: str) -> None:
    with pytest.raises(InvalidTrial, match=message):
        begin(**attributes).train(1, never)


def test_a_checkpoint_of_another_state_is_refused(tmp_path: Path) -> None:
    path = save(begin(), tmp_path / "checkpoint")
    for state, message in (
        ((np.zeros(3), 0), r"it has weights: f32\[2\], and the trial f32\[3\]"),
        ((np.zeros(2), 0, 1), r"it has rest/1: nothing, and the trial i32\[\]"),
    ):
        with pytest.raises(InvalidTrial, match=message):
            begin(state=state).load(path, batches_trained=1)
    begin(state=(np.zeros(2), 0, 1)).load(path, batches_trained=0)


def test_files_are_checked(tmp_path: Path) -> None:
    path = save(begin(), tmp_path / "checkpoint")
    content = (path / ARRAYS).read_bytes()
    (path / ARRAYS).write_bytes(content[: len(content) // 2])
    with pytest.raises(CheckpointCorrupt, match=ARRAYS):
        read_checkpoint(path)
    with pytest.raises(InvalidTrial, match=r"not a checkpoint of a JaxTrial: expected jax.json in it, found nothing"):
        read_checkpoint(make_directory(tmp_path / "empty"))


@pytest.mark.parametrize("trial_class", [Functions, Objects])
def test_the_state_of_a_checkpoint_is_loaded(trial_class: Any, tmp_path: Path) -> None:
    adapter = begin(trial_class)
    adapter.train(2, never)
    path = save(adapter, tmp_path / "checkpoint")
    state = det_jax.load_state_from_checkpoint_path(path, trial_class=trial_class)
    if trial_class is Objects:
        assert (type(state[1]), int(state[1].step[...])) == (nnx.Optimizer, 2)
    loaded = ArrayState(state).arrays()
    expected, _ = read_checkpoint(path)
    assert loaded.keys() == expected.keys()
    assert all(loaded[name].tobytes() == expected[name].tobytes() for name in expected)


def test_loading_imports_no_code_of_the_checkpoint(tmp_path: Path) -> None:
    path = save(begin(), tmp_path / "checkpoint")
    (path / "code").mkdir()
    with pytest.raises(UntrustedCheckpoint, match="model_def:Mine"):
        det_jax.load_state_from_checkpoint_path(path)
