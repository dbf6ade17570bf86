"""Conversion of checkpoint states from layouts of older releases to det's own layout."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from types import FunctionType, MethodType
from typing import Any

import numpy as np
from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present

from det_core.errors import CheckpointCorrupt, InvalidTrial
from det_torch._checkpoints._unpickling import AbsentObject

_log = logging.getLogger("det.torch")

# The first releases supported only one model, optimizer and scheduler.
_SINGULAR_KEYS = {
    "model_state_dict": "models_state_dict",
    "optimizer_state_dict": "optimizers_state_dict",
    "lr_scheduler": "lr_schedulers_state_dict",
}
_RNG = {"cpu_rng_state": "cpu", "gpu_rng_state": "gpu", "np_rng_state": "np", "random_rng_state": "random"}
_APEX = "amp_state"
_DDP = "module."


def convert_old_layout(saved: Any) -> dict[str, Any]:
    """Convert a state that det or any release of the original saved to det's layout.

    Args:
        saved: state from a checkpoint.

    Returns:
        The converted state, with defaults for missing parts.

    Raises:
        CheckpointCorrupt: the state contradicts itself.
    """
    if not isinstance(saved, dict):
        raise CheckpointCorrupt(f"the checkpoint's state is of type {type(saved).__name__}; expected a dict")
    state = dict(saved)
    _drop((AbsentObject,), state, "state")
    for old, new in _SINGULAR_KEYS.items():
        if old in state and new in state:
            raise CheckpointCorrupt(f"the checkpoint has both {old} and {new}; expected one of them")
        if old in state:
            state[new] = [state.pop(old)]
    if state.pop(_APEX, None) is not None:
        _log.warning("the checkpoint's state of apex (%s) is ignored, because det scales losses with torch.amp", _APEX)
    # OneCycleLR used to save its annealing function. Today's releases do not need it, and det would refuse to save it.
    _drop((FunctionType, MethodType), state.get("lr_schedulers_state_dict"), "lr_schedulers_state_dict")
    rng = state.get("rng_state")
    if "models_state_dict" in state and not _is_current_layout(rng):
        state["models_state_dict"] = [_without_ddp(model) for model in state["models_state_dict"]]
    empty: dict[str, Any] = {"optimizers_state_dict": [], "lr_schedulers_state_dict": [], "callbacks": {}}
    return {**empty, "scaler_state_dict": None, **state, "rng_state": _rng(rng)}


def check_count(kind: str, wrapped: Sequence[Any], saved: Sequence[Any]) -> None:
    """Check that the number of saved objects equals the number of wrapped objects.

    Args:
        kind: name of the objects in the plural, for messages.
        wrapped: objects that the trial wrapped.
        saved: states of the objects in the checkpoint.

    Raises:
        InvalidTrial: the numbers differ.
    """
    if len(wrapped) != len(saved):
        raise InvalidTrial(
            f"the checkpoint has {len(saved)} {kind}, but the trial has {len(wrapped)}; "
            "it can only continue with the code that saved it"
        )


def _is_current_layout(rng: Mapping[str, Any] | None) -> bool:
    return rng is not None and "random" in rng


def _without_ddp(model: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a model without the name prefix of DistributedDataParallel."""
    if model and all(name.startswith(_DDP) for name in model):
        consume_prefix_in_state_dict_if_present(model, _DDP)
    return model


def _rng(saved: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if saved is None:
        return None
    if _is_current_layout(saved):
        return dict(saved)
    state = {_RNG.get(name, name): value for name, value in saved.items()}
    version, words, gauss = state["random"]
    name, keys, *rest = state["np"]
    return {
        **state,
        "random": [version, list(words), gauss],
        "np": [str(name), np.asarray(keys).tolist(), *rest],
    }


def _drop(kinds: tuple[type, ...], value: Any, place: str) -> None:
    """Delete items of the given types from all dicts in a value."""
    if isinstance(value, dict):
        for key in [key for key, item in value.items() if isinstance(item, kinds)]:
            _log.warning("%s.%s of the checkpoint is ignored, because it is not plain data", place, key)
            del value[key]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    for key, item in items:
        _drop(kinds, item, f"{place}.{key}")
