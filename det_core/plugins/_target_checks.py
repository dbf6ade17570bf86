"""Checks that the target of a plugin, and the model of its options, suit its kind."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, get_args

from det_core import events

if TYPE_CHECKING:
    from pydantic import BaseModel

_MADE = {
    "backend": "Backend",
    "launcher": "Launcher",
    "observer": "Observer",
    "search_method": "SearchMethod",
    "storage": "StorageManager",
}
"""Interface of the object that a target creates, by kind of plugin. Targets of other kinds are functions."""
_PARAMETERS = {
    "framework": ("trial_class", "core_context"),
    "backend": ("options",),
    "storage": ("config",),
    "launcher": ("config",),
    "observer": ("config",),
    "search_method": ("config", "hyperparameters", "seed"),
    "command": ("parser",),
}
"""Arguments of a target, by kind of plugin."""


def makes_object(kind: str) -> bool:
    """Return whether targets of this kind create an object. Others do the work themselves."""
    return kind in _MADE


def target_mismatch(kind: str, target: Any) -> str:
    """Return why an imported target does not suit its kind, or an empty string.

    Args:
        kind: a key of `KINDS`.
        target: imported target.
    """
    expected = _interface(kind)
    if isinstance(target, type):
        if expected is None or not issubclass(target, expected):
            return f"it is the class {target.__name__}; expected {_expected(kind)}"
        missing = getattr(target, "__abstractmethods__", ())
        if missing:
            return f"the class {target.__name__} does not implement {', '.join(sorted(missing))}"
    elif not callable(target):
        return f"it is {target!r:.100}; expected {_expected(kind)}"
    return ""


def instance_mismatch(kind: str, made: Any) -> str:
    """Return why the object that a target returned does not suit its kind, or an empty string."""
    expected = _interface(kind)
    fits = expected is None or isinstance(made, expected)
    return "" if fits else f"it returned {made!r:.100}; expected {_expected(kind)}"


def misspelled_methods(target: type) -> list[str]:
    """Return a message for each method of an observer that det does not call, but that resembles one that it calls.

    Args:
        target: class of observers.
    """
    called = [event.name for event in events.EVENTS]
    messages = []
    for name in sorted(vars(target).keys() - {*called}):
        near = difflib.get_close_matches(name, called, n=1, cutoff=0.8)
        if near and callable(getattr(target, name)):
            messages.append(f"det does not call its method {name}; did you mean {near[0]!r}?")
    return messages


def signature_mismatch(kind: str, target: Any, further: Sequence[str]) -> str:
    """Return why a target cannot be called with the arguments of its kind and further ones, or an empty string."""
    parameters = (*_PARAMETERS[kind], *further)
    try:
        inspect.signature(target).bind(*parameters)
    except TypeError as error:
        return f"it cannot be called with ({', '.join(parameters)}): {error}"
    except ValueError:  # a function of C without a signature
        return ""
    return ""


def config_model_mismatch(kind: str, model: Any) -> str:
    """Return why a config model does not suit its kind, or an empty string.

    Args:
        kind: a key of `KINDS`.
        model: imported model, or None if the plugin names none.
    """
    if model is not None:
        from pydantic import BaseModel  # only needed for plugins with a config

        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return f"it is {model!r:.100}; expected a pydantic.BaseModel class"
        for nested in () if "extra" in model.model_config else _nested_models(model):
            extra = nested.model_config.get("extra", "forbid")
            if extra != "forbid":
                return (
                    f"its nested model {nested.__name__} sets {extra=}, while det refuses all unknown keys in the "
                    f"block of a model that does not configure `extra`; add to {model.__name__}: "
                    "model_config = ConfigDict(extra='forbid')"
                )
    fields = getattr(model, "model_fields", {})
    if kind == "search_method" and not ({"max_length", "unit"} & fields.keys() or hasattr(model, "unit")):
        return (
            "the config model of a search method must have a length, or trials would not know how long to train; add "
            "the field `max_length: PositiveLength` from det_core.config, or a property `unit` if lengths have another "
            "name"
        )
    return ""


def _nested_models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Yield the models in the annotations of a model's fields, also those within containers and other models."""
    seen: list[Any] = []
    waiting: list[Any] = [model]
    while waiting:
        part = waiting.pop()
        if part in seen:
            continue
        seen.append(part)
        waiting += get_args(part)
        if hasattr(part, "model_fields") and not get_args(part):
            yield part
            waiting += [field.annotation for field in part.model_fields.values()]


def answer_mismatch(answer: Any) -> str:
    """Return why the answer of a choice hook cannot be used, or an empty string."""
    return "" if isinstance(answer, str | None) else f"answers {answer!r:.100}; expected a name or None"


def _interface(kind: str) -> type | None:
    """Import the interface only once there is a target to check, because every command imports this module."""
    interface: type | None = None
    if kind in _MADE:
        interface = getattr(import_module(f"det_core.interfaces.{kind}"), _MADE[kind])
    return interface


def _expected(kind: str) -> str:
    expected = _interface(kind)
    if expected is None:
        return "a function"
    return f"a subclass of {expected.__module__}.{expected.__name__}, or a function that returns an instance of one"
