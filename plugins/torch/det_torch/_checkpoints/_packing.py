"""Conversion of user state to types that ``torch.load(weights_only=True)`` accepts, and back."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from det_core.errors import InvalidTrial

_Place: TypeAlias = str | tuple[Any, Any]
"""Name of a value, or the place of its container and its index or key there. Formatted as text only for errors."""

_FORM, _VALUE, _ARGUMENT = "det.type", "value", "argument"
_ON_ACCELERATOR = "tensor on an accelerator"
_PLAIN = {type(None), bool, int, float, complex, str, bytes, bytearray, torch.Size, torch.dtype, torch.device}
_DICTS: set[type] = {dict, OrderedDict, Counter}
_FACTORIES: dict[str, type] = {
    factory.__name__: factory for factory in (bool, dict, float, int, list, set, str, tuple, deque, Counter)
}
_ACCEPTED = (
    "tensors, numbers, strings, bytes, None, numpy arrays and scalars of numbers, Paths, ranges, datetimes, "
    "timedeltas, and lists, tuples, sets, "
    "frozensets, deques, dicts, OrderedDicts, Counters and defaultdicts of them; return only these types from "
    "state_dict(), for example an Enum's .name instead of the Enum"
)


@dataclass(frozen=True)
class _Form:
    """Conversion of a type to a value of accepted types plus one plain argument, and back."""

    type: type
    split: Callable[[Any], tuple[Any, Any]]
    join: Callable[[Any, Any], Any]


def _dict(kind: Callable[[Any], Any], pairs: list[list[Any]], _: None) -> Any:
    return kind(dict(pairs))


_FORMS: dict[str, _Form] = {
    "ndarray": _Form(np.ndarray, lambda array: (_tensor(array), None), lambda tensor, _: tensor.numpy()),
    "numpy scalar": _Form(
        np.generic, lambda scalar: (_tensor(np.asarray(scalar)), None), lambda tensor, _: tensor.numpy()[()]
    ),
    "range": _Form(
        range, lambda numbers: ([numbers.start, numbers.stop, numbers.step], None), lambda ends, _: range(*ends)
    ),
    "datetime": _Form(
        datetime,
        lambda time: (_time_text(time), time.fold),
        lambda text, fold: datetime.fromisoformat(text).replace(fold=fold),
    ),
    "timedelta": _Form(
        timedelta,
        lambda time: ([time.days, time.seconds, time.microseconds], None),
        lambda parts, _: timedelta(*parts),
    ),
    "Path": _Form(type(Path()), lambda path: (str(path), None), lambda text, _: Path(text)),
    "deque": _Form(deque, lambda items: (list(items), items.maxlen), deque),
    "frozenset": _Form(frozenset, lambda items: (list(items), None), lambda items, _: frozenset(items)),
    "defaultdict": _Form(
        defaultdict,
        lambda items: (dict(items), _factory_name(items.default_factory)),
        lambda items, name: defaultdict(name and _FACTORIES[name], items),
    ),
    # Sets and dicts are accepted unchanged unless their members or keys are of types that are not accepted.
    "set": _Form(set, lambda items: (list(items), None), lambda items, _: set(items)),
    **{kind.__name__: _Form(kind, lambda items: (_pairs(items), None), partial(_dict, kind)) for kind in _DICTS},
}
_NAMES = {form.type: name for name, form in _FORMS.items()}


def pack_state(value: Any, where: _Place = "") -> Any:
    """Return an equal value in types that load safely.

    Tensors and values that are already of accepted types are passed by reference.

    Args:
        value: state to convert, with any nesting.
        where: name of ``value`` in error messages.

    Raises:
        InvalidTrial: a nested value is of an unsupported type. The message names the type and the place.
    """
    kind = type(value)
    if kind in _PLAIN or isinstance(value, torch.Tensor):
        return value
    if kind is list or kind is tuple:
        packed = [pack_state(item, (where, index)) for index, item in enumerate(value)]
        return value if _same(packed, value) else kind(packed)
    if kind is set and _are_plain(value, where):
        return value
    if kind in _DICTS and _FORM not in value and _are_plain(value, where):
        return _with_values(value, {key: pack_state(item, (where, key)) for key, item in value.items()})
    return _pack_form(value, where)


def mark_accelerated(packed: Any) -> Any:
    """Return packed state in which `unpack_state` recognizes the tensors that are on an accelerator now."""
    return map_leaves(packed, lambda leaf, _: _marked(leaf) if isinstance(leaf, torch.Tensor) else leaf)


def unpack_state(value: Any, accelerator: torch.device | None = None) -> Any:
    """Return the value that `pack_state` was called with, in its original types.

    Args:
        value: the packed state.
        accelerator: device for the tensors that `mark_accelerated` marked. None leaves them where they are.
    """
    kind = type(value)
    if kind is list or kind is tuple:
        unpacked = [unpack_state(item, accelerator) for item in value]
        return value if _same(unpacked, value) else kind(unpacked)
    if kind in _DICTS:
        if _FORM not in value:
            return _with_values(value, {key: unpack_state(item, accelerator) for key, item in value.items()})
        content = unpack_state(value[_VALUE], accelerator)
        if value[_FORM] == _ON_ACCELERATOR:
            return content if accelerator is None else content.to(accelerator)
        return _FORMS[value[_FORM]].join(content, value[_ARGUMENT])
    return value


def map_leaves(value: Any, change: Callable[[Any, _Place], Any], where: _Place = "") -> Any:
    """Return packed state with every value that is not a list, tuple or dict replaced.

    Args:
        value: packed state.
        change: function that is called as ``change(leaf, place)`` and returns the replacement.
        where: place of ``value`` itself.
    """
    kind = type(value)
    if kind is list or kind is tuple:
        changed = [map_leaves(item, change, (where, index)) for index, item in enumerate(value)]
        return value if _same(changed, value) else kind(changed)
    if kind in _DICTS:
        return _with_values(value, {key: map_leaves(item, change, (where, key)) for key, item in value.items()})
    return change(value, where)


def _marked(tensor: torch.Tensor) -> Any:
    return tensor if tensor.is_cpu else {_FORM: _ON_ACCELERATOR, _VALUE: tensor, _ARGUMENT: None}


def _are_plain(keys: Iterable[Any], where: _Place) -> bool:
    return all(pack_state(key, (where, key)) is key for key in keys)


def _pack_form(value: Any, where: _Place) -> dict[str, Any]:
    name = "numpy scalar" if isinstance(value, np.generic) else _NAMES.get(type(value))
    if name is None:
        raise _refused(value, where)
    try:
        content, argument = _FORMS[name].split(value)
    except (TypeError, ValueError) as error:
        raise _refused(value, where, f" ({error})") from error
    return {_FORM: name, _VALUE: pack_state(content, where), _ARGUMENT: argument}


def _refused(value: Any, where: _Place, why: str = "") -> InvalidTrial:
    kind = type(value)
    return InvalidTrial(
        f"{_text(where) or 'the state'} is a {kind.__module__}.{kind.__qualname__}{why}, which a checkpoint cannot "
        f"hold; expected {_ACCEPTED}"
    )


def _text(where: _Place) -> str:
    if isinstance(where, str):
        return where
    outer, key = _text(where[0]), where[1]
    if not (isinstance(key, str) and key.isidentifier()):
        return f"{outer}[{key!r}]"
    return f"{outer}.{key}" if outer else key


def _same(new: Any, old: Any) -> bool:
    return all(one is other for one, other in zip(new, old, strict=True))


def _with_values(old: Any, values: dict[Any, Any]) -> Any:
    """Return the dict itself if it has these values, else a copy with them that keeps its attributes.

    One such attribute is ``_metadata`` of a module's state dict.
    """
    if _same(values.values(), old.values()):
        return old
    new = copy(old)
    for key, value in values.items():
        new[key] = value
    return new


def _pairs(items: dict[Any, Any]) -> list[list[Any]]:
    return [list(item) for item in items.items()]


def _tensor(array: np.ndarray[Any, Any]) -> torch.Tensor:
    # torch rejects negative strides and warns about read-only memory. The copy keeps the memory layout because the
    # layout decides the order in which numpy sums.
    if not array.flags.writeable or min(array.strides, default=0) < 0:
        array = array.copy(order="K")
    return torch.from_numpy(array)


def _time_text(time: datetime) -> str:
    if time.tzinfo is not None and type(time.tzinfo) is not timezone:
        raise TypeError(f"its tzinfo is {time.tzinfo!r}; expected none or a datetime.timezone")
    return time.isoformat()


def _factory_name(factory: Any) -> str | None:
    if factory is None:
        return None
    name = getattr(factory, "__name__", "")
    if _FACTORIES.get(name) is not factory:
        raise TypeError(f"its default_factory is {factory!r}; expected one of {', '.join(_FACTORIES)}")
    return str(name)
