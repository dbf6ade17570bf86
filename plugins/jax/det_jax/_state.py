"""State of a trial as named arrays, and the files of a checkpoint."""

from __future__ import annotations

import json
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from det_core.errors import CheckpointCorrupt, InvalidTrial
from det_core.package_commands import package_command
from det_core.storage import read_object

FORMAT = 1
ARRAYS = "jax.npz"
"""File of a checkpoint with all arrays of the state, by name."""
STATE = "jax.json"
"""File of a checkpoint with everything else."""
_WEIGHTS = "weights"


class ArrayState:
    """State of a trial as a pytree of arrays, without the ``flax.nnx`` objects that it may contain.

    Args:
        state: what ``initial_state`` returned.

    Raises:
        InvalidTrial: it is not a tuple of pytrees of arrays.
    """

    def __init__(self, state: Any) -> None:
        if not isinstance(state, tuple) or not state:
            raise InvalidTrial(
                f"initial_state() returned {type(state).__name__}; expected a tuple whose first part is the weights, "
                "such as (params, optimizer_state) or (model, optimizer)"
            )
        self._make: Callable[..., Any] = getattr(type(state), "_make", tuple)
        parts = _as_parts(state)
        nnx = sys.modules.get("flax.nnx")
        self._objects = (nnx.Pytree, nnx.Variable) if nnx else ()
        with _explaining_errors("initial_state"):
            # NNX would take numbers beside its objects for constants.
            parts = self._map_arrays(partial(_own_array, "initial_state"), parts)
            nodes = jax.tree.leaves(parts, is_leaf=self._is_object)
            self._nnx = nnx if nnx and any(isinstance(node, nnx.Pytree) for node in nodes) else None
            if self._nnx:
                self._graph, parts = self._nnx.split(parts)
            self.tree = jax.tree_util.tree_map_with_path(partial(_own_array, "initial_state"), parts)
            """The arrays, which a training step replaces."""
        self._names = [_name(path) for path, _ in jax.tree_util.tree_leaves_with_path(self.tree)]
        if twice := [name for name, number in Counter(self._names).items() if number > 1]:
            raise InvalidTrial(f"initial_state() has two arrays named {twice[0]}; rename a key that contains a '/'")
        self._random = set[str]()
        """Names of the states of generators, which are no weights although a model may contain them."""
        if self._nnx:
            found = jax.tree_util.tree_leaves_with_path(self._nnx.filter_state(self.tree, self._nnx.RngState))
            self._random = {_name(path) for path, _ in found}

    def merge(self, tree: Any) -> Any:
        """Return the user's state with these arrays."""
        parts = self._nnx.merge(self._graph, tree) if self._nnx else tree
        return self._make((parts[_WEIGHTS], *parts["rest"]))

    def split(self, state: Any) -> Any:
        """Return the arrays of a state that a training step returned.

        Raises:
            InvalidTrial: it differs from the initial state.
        """
        parts = _as_parts(state) if isinstance(state, tuple) else state
        with _explaining_errors("train_step"):
            parts = self._map_arrays(partial(_as_array, "train_step"), parts)
            tree = jax.tree.map(_strong, self._nnx.state(parts)) if self._nnx else parts
        found, expected = (
            {_name(path): str(jax.typeof(leaf)) for path, leaf in jax.tree_util.tree_leaves_with_path(one)}
            for one in (tree, self.tree)
        )
        for name in {**expected, **found}:
            if found.get(name) != expected.get(name):
                raise InvalidTrial(
                    f"train_step() returned a state with {name}: {found.get(name, 'nothing')}; expected "
                    f"{expected.get(name, 'nothing')}, as in the initial state"
                )
        return jax.tree.unflatten(jax.tree.structure(self.tree), jax.tree.leaves(tree))

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return copies of all arrays by name, on the host."""
        raw = [jax.random.key_data(one) if _is_key(one) else one for one in jax.tree.leaves(self.tree)]
        # On a CPU, device_get returns views of memory that the next training step overwrites.
        return dict(zip(self._names, map(np.array, jax.device_get(raw)), strict=True))

    def load(self, arrays: Mapping[str, np.ndarray[Any, Any]], origin: Path, *, only_weights: bool = False) -> None:
        """Take arrays that `arrays` returned.

        Args:
            arrays: arrays by name.
            origin: directory of the checkpoint, for errors.
            only_weights: whether to take only the first part of the state.

        Raises:
            InvalidTrial: the trial has other arrays.
        """
        named = dict(zip(self._names, jax.tree.leaves(self.tree), strict=True))
        taken = {name for name in {*named, *arrays} if not only_weights or self._is_weight(name)}
        for name in sorted(taken):
            own, saved = named.get(name), arrays.get(name)
            expected, found = _describe(own), _describe(saved)
            if expected != found:
                raise InvalidTrial(
                    f"{origin} does not fit the trial: it has {name}: {found}, and the trial {expected}; undo the "
                    "change of the state, or start a new trial with the weights of the checkpoint"
                )
            named[name] = _restore(own, saved)
        self.tree = jax.tree.unflatten(jax.tree.structure(self.tree), [named[name] for name in self._names])

    def _map_arrays(self, change: Callable[[Any, Any], Any], parts: Any) -> Any:
        """Return a pytree whose leaves, apart from the objects of NNX, are changed."""
        return jax.tree_util.tree_map_with_path(
            lambda path, leaf: leaf if self._is_object(leaf) else change(path, leaf), parts, is_leaf=self._is_object
        )

    def _is_object(self, node: Any) -> bool:
        return isinstance(node, self._objects)

    def _is_weight(self, name: str) -> bool:
        return name.partition("/")[0] == _WEIGHTS and name not in self._random


def write_checkpoint(arrays: Mapping[str, np.ndarray[Any, Any]], state: Mapping[str, Any], path: Path) -> None:
    """Write arrays and JSON-compatible values into a checkpoint's directory."""
    np.savez(path / ARRAYS, **arrays)
    (path / STATE).write_text(json.dumps({"format": FORMAT, **state}), encoding="utf-8")


def read_checkpoint(path: Path) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    """Return what `write_checkpoint` wrote.

    Raises:
        InvalidTrial: there is nothing, or a release with another format wrote it.
        CheckpointCorrupt: a file is damaged.
    """
    if not (path / STATE).exists():
        found = ", ".join(sorted(one.name for one in path.iterdir())) or "nothing"
        raise InvalidTrial(f"{path} is not a checkpoint of a JaxTrial: expected {STATE} in it, found {found}")
    state = read_object(path / STATE)
    if state.get("format") != FORMAT:
        raise InvalidTrial(
            f"{path} has format {state.get('format')!r:.50}, but this det-jax reads format {FORMAT}; "
            f"upgrade: {package_command('upgrade', 'det-jax')}"
        )
    try:
        with (path / ARRAYS).open("rb") as file:  # numpy.load would not close a damaged one
            return dict(np.load(file, allow_pickle=False)), state
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise CheckpointCorrupt(f"{path / ARRAYS} is damaged: {error}") from error


def _as_parts(state: tuple[Any, ...]) -> dict[str, Any]:
    return {_WEIGHTS: state[0], "rest": tuple(state[1:])}


def _name(path: Any) -> str:
    return str(jax.tree_util.keystr(path, simple=True, separator="/"))


@contextmanager
def _explaining_errors(method: str) -> Iterator[None]:
    try:
        yield
    except (TypeError, ValueError) as error:  # such as keys that cannot be sorted
        raise InvalidTrial(f"{method}() returned a state that JAX cannot use: {error}") from error


def _own_array(method: str, path: Any, leaf: Any) -> jax.Array:
    """Return a copy, because a training step overwrites it."""
    return _as_array(method, path, leaf).copy()


def _as_array(method: str, path: Any, leaf: Any) -> jax.Array:
    try:
        return leaf if _is_key(leaf) else _strong(jnp.asarray(leaf))
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidTrial(
            f"{method}() returned {type(leaf).__name__} as {_name(path)}; expected an array or a number: {error}"
        ) from error


def _strong(leaf: Any) -> jax.Array:
    """Return an array of a fixed dtype. That of a Python number may change in expressions, and is not in a file."""
    return leaf if _is_key(leaf) else jax.lax.convert_element_type(leaf, jnp.result_type(leaf))


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _describe(array: Any) -> str:
    if array is None:
        return "nothing"
    array = jax.random.key_data(array) if _is_key(array) else array
    size = array.dtype.itemsize  # NumPy's files know no bfloat16, only its two bytes
    return f"{array.dtype.kind if array.dtype.kind != 'V' else 'bytes'}{8 * size}{list(array.shape)}"


def _restore(own: Any, saved: Any) -> jax.Array:
    if _is_key(own):
        return jax.random.wrap_key_data(saved, impl=jax.random.key_impl(own))
    return jnp.array(saved.view(own.dtype), copy=True)
