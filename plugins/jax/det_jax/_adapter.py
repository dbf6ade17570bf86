"""Adapter through which TrialLoop drives a JaxTrial."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from det_core.errors import InvalidTrial
from det_core.interfaces.framework import Metrics, OnAllWorkers, TrialAdapter
from det_core.trial import TrialContext
from det_core.trial.random_generators import (
    derive_seed,
    forked_generators,
    get_generator_states,
    set_generator_states,
)
from det_core.trial.trial_description import write_description
from det_jax._data import BatchSource, EpochStream
from det_jax._state import ArrayState, read_checkpoint, write_checkpoint
from det_jax._trial import JaxTrial

_log = logging.getLogger("det.jax")


class JaxAdapter(TrialAdapter):
    """Adapter that trains and evaluates one `JaxTrial` in this process.

    Args:
        trial: the trial to train.
        context: the context of the trial.
        description: description of the trial, which every checkpoint stores for `load_state_from_checkpoint_path`.

    Raises:
        InvalidTrial: the trial is incomplete, or its data cannot be used.
    """

    writes_behind = True

    def __init__(self, trial: JaxTrial, context: TrialContext, description: Mapping[str, Any]) -> None:
        self._trial, self._context, self._description = trial, context, description
        self._seed, size = context.get_trial_seed(), context.get_global_batch_size()
        self._state = ArrayState(trial.initial_state(make_key(self._seed, "initial state")))
        self._training = BatchSource(trial.build_training_data_loader(), "training", size, self._seed)
        self._validation = BatchSource(trial.build_validation_data_loader(), "validation", size, None)
        self._stream = EpochStream(self._training, self._seed)
        self._train_step = jax.jit(self._call_train_step, donate_argnums=0)
        self._evaluate_step = jax.jit(self._call_evaluate_step)
        self._batch = 0
        self._warned = False

    @property
    def batches_per_epoch(self) -> int | None:
        return self._training.batches or self._context.batches_per_epoch()

    @property
    def records_per_batch(self) -> int:
        return self._context.get_global_batch_size()

    def write_initial_state(self, path: Path, *, most: int) -> int:
        size = sum(array.nbytes for array in self._state.arrays().values())
        if size <= most:
            self.snapshot()(path)
        return size

    def rehearse(self, together: OnAllWorkers) -> Metrics | None:
        (metrics,) = together(lambda: self._evaluate(lambda: False, most=1))
        return metrics

    def train(self, batches: int, stop: Callable[[], bool]) -> Sequence[Metrics]:
        rows: list[Any] = []
        with self._noting_errors("training"):
            while len(rows) < batches and not (rows and stop()):
                batch = next(self._stream)
                self._state.tree, metrics = self._train_step(self._state.tree, batch, np.uint32(self._batch))
                self._batch += 1
                rows.append(metrics)
            return [jax.tree.map(_plain, row) for row in jax.device_get(rows)]

    def validate(self, stop: Callable[[], bool]) -> Metrics | None:
        return self._evaluate(stop)

    def snapshot(self) -> Callable[[Path], None]:
        state = {"data": self._stream.state(), "random": get_generator_states()}
        return partial(self._write, self._state.arrays(), state)

    def load(self, path: Path, *, batches_trained: int) -> None:
        arrays, state = read_checkpoint(path)
        self._state.load(arrays, path, only_weights=batches_trained == 0)
        if batches_trained:
            self._batch = batches_trained
            self._stream.load_state(state["data"])
            set_generator_states(state["random"])

    def metadata(self) -> Mapping[str, Any]:
        return {"framework": f"jax-{jax.__version__}", "format": "npz", "trial_framework": "jax"}

    def _write(self, arrays: Mapping[str, Any], state: Mapping[str, Any], path: Path) -> None:
        write_checkpoint(arrays, state, path)
        write_description(self._description, path)

    def _call_train_step(self, tree: Any, batch: Any, number: Any) -> tuple[Any, Any]:
        rng = jax.random.fold_in(make_key(self._seed, "training"), number)
        result = self._trial.train_step(self._state.merge(tree), batch, rng)
        if not isinstance(result, tuple) or len(result) != 2:
            raise InvalidTrial(f"train_step() returned {type(result).__name__}; expected a pair (state, metrics)")
        return self._state.split(result[0]), _checked(result[1], "train_step")

    def _call_evaluate_step(self, tree: Any, batch: Any, number: Any) -> Any:
        rng = jax.random.fold_in(make_key(self._seed, "validation"), number)
        return _checked(self._trial.evaluate_step(self._state.merge(tree), batch, rng), "evaluate_step")

    def _evaluate(self, stop: Callable[[], bool], most: int | None = None) -> Metrics | None:
        """Return the means over the records, or None if ``stop()`` was true."""
        rows: list[Any] = []
        records: list[int] = []
        # Separate generators, so that the number of validations does not affect training.
        with forked_generators(derive_seed(self._seed, "validation")), self._noting_errors("validation"):
            for number, batch in enumerate(islice(self._validation.read(), most)):
                rows.append(self._evaluate_step(self._state.tree, batch, np.uint32(number)))
                records.append(self._count_records(batch))
                if stop():
                    return None
            if not rows:
                raise InvalidTrial("the validation data has no batch; expected at least one")
            try:
                return dict(jax.tree.map(partial(_mean, records), *jax.device_get(rows)))
            except ValueError as error:
                raise InvalidTrial(
                    "evaluate_step() returned other metrics, or other shapes, for some batches; return means over the "
                    f"records of a batch: {error}"
                ) from error

    def _count_records(self, batch: Any) -> int:
        """Return the number of records that all arrays of a batch have, or 1 to weigh all batches alike."""
        records = {np.shape(array)[0] for array in jax.tree.leaves(batch) if np.ndim(array)}
        if len(records) > 1 and not self._warned:
            self._warned = True
            _log.warning(
                "the arrays of a validation batch have different first dimensions (%s), so the number of records is "
                "unknown, and all batches count alike in the means",
                ", ".join(map(str, sorted(records))),
            )
        return records.pop() if len(records) == 1 else 1

    @contextmanager
    def _noting_errors(self, activity: str) -> Iterator[None]:
        try:
            yield
        except Exception:
            _log.error("%s failed at batch %d, counted from 0", activity, self._batch)
            raise


def make_key(seed: int, purpose: str) -> jax.Array:
    """Return a key that depends only on a trial's seed and on what it is for."""
    return jax.random.key(np.uint32(derive_seed(seed, purpose) % 2**32))


def _checked(metrics: Any, method: str) -> dict[str, Any]:
    """Return metrics of a step as arrays, if they are real numbers."""
    if not isinstance(metrics, Mapping) or not all(isinstance(name, str) for name in metrics):
        raise InvalidTrial(
            f"{method}() returned {type(metrics).__name__} as metrics; expected a dict of names and numbers"
        )
    try:
        return dict(jax.tree_util.tree_map_with_path(partial(_real, method), dict(metrics), is_leaf=_is_none))
    except ValueError as error:  # of keys that cannot be sorted
        raise InvalidTrial(f"{method}() returned metrics that JAX cannot use: {error}") from error


def _is_none(value: Any) -> bool:
    return value is None


def _real(method: str, path: Any, value: Any) -> jax.Array:
    try:
        array = jnp.asarray(value)
        found = str(array.dtype)
        if any(jnp.issubdtype(array.dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_)):
            return array
    except (TypeError, ValueError, OverflowError):
        found = type(value).__name__
    name = jax.tree_util.keystr(path, simple=True, separator=".")
    raise InvalidTrial(f"{method}() returned {found} as the metric {name}; expected a real number, or an array of them")


def _plain(value: Any) -> Any:
    """Return an array as a number, or as a NumPy array of float64, int64 or bool."""
    array = np.asarray(value)
    for kind, dtype in ((jnp.floating, np.float64), (jnp.integer, np.int64)):
        array = array.astype(dtype) if jnp.issubdtype(array.dtype, kind) else array
    return array if array.ndim else array.item()


def _mean(records: Sequence[int], *values: Any) -> Any:
    return _plain(np.average(np.stack([_plain(value) for value in values]).astype(np.float64), axis=0, weights=records))
