"""Files that hold nothing but named tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from det_core.errors import InvalidTrial
from det_torch._checkpoints._staging import wraps_tensors

_UNSUITABLE: dict[str, Callable[[Any, Any], bool]] = {
    "is a name that is not text": lambda name, value: not isinstance(name, str),
    "is not a tensor": lambda name, value: not isinstance(value, torch.Tensor),
    "has no values, because it is on the device meta": lambda name, value: value.is_meta,
    "is a sparse tensor": lambda name, value: value.layout is not torch.strided,
    "is a nested tensor": lambda name, value: value.is_nested,
}
_RESERVED = "__metadata__"


def check_tensors(weights: Mapping[Any, Any], remedy: str) -> dict[str, torch.Tensor]:
    """Return weights whose names are texts and whose values are dense tensors.

    Args:
        weights: state of a model.
        remedy: what to do if it has something else, for the error.

    Raises:
        InvalidTrial: it has something else.
    """
    for name, value in weights.items():
        if problem := next((each for each, applies in _UNSUITABLE.items() if applies(name, value)), None):
            raise InvalidTrial(f"the model's state_dict() has {name!r}, which {problem}; {remedy}")
    return {**weights}


def save_safetensors(tensors: dict[str, torch.Tensor], file: Path, remedy: str) -> None:
    """Write tensors that share no memory to a file of safetensors.

    Args:
        tensors: the tensors.
        file: the file.
        remedy: what to do if the format cannot hold them, for the error.

    Raises:
        ImportError: safetensors is not installed.
        InvalidTrial: the format cannot hold a name or a type.
    """
    from safetensors.torch import save_file

    try:
        for name, value in tensors.items():
            if name == _RESERVED or wraps_tensors(value):
                raise ValueError(f"the tensor {name!r}")
        save_file(tensors, file, metadata={"format": "pt"})
    except (KeyError, ValueError) as error:  # also of a type, such as complex128, or of a name that is no Unicode
        raise InvalidTrial(f"safetensors cannot hold {error}, which the model's state_dict() has; {remedy}") from error
