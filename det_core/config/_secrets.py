"""Detection and masking of secrets in a config.

A secret is a value that a plugin's model declares as `pydantic.SecretStr` or `pydantic.SecretBytes`, or text under a
key whose name suggests a secret. Hyperparameters, labels and the searcher's options are recorded and shown whatever
their names, because users need to see them in results. Errors of a config quote no value with such a name.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, SecretBytes, SecretStr

from det_core.interfaces.secrets import OPEN_KEYS, SECRET_REFERENCE, Location, Secret

_NAME = re.compile(
    r"(access|account|api|private)_?key|secret|passw|_pwd$|connection_string|credential|(^|_)auth(_|$)|token$", re.I
)
_VARIABLES = "environment_variables"


def is_secret(location: Location) -> bool:
    """Return whether messages must not quote the value at this location."""
    return _VARIABLES in location or _named(location)


def _named(location: Location) -> bool:
    """Return whether the name of a key in the location suggests a secret."""
    return any(isinstance(part, str) and _NAME.search(part) for part in location)


def mark_secrets(plain: Any, typed: Any, location: Location = ()) -> Any:
    """Return a copy in which every secret is a `Secret`.

    Args:
        plain: JSON-compatible values. Pydantic has masked the secrets that it knows.
        typed: the same values as Python objects.
        location: location of the values in the config.
    """
    if location[:1] and location[0] in OPEN_KEYS:
        return plain
    if isinstance(typed, (SecretStr, SecretBytes)):
        secret = typed.get_secret_value()
        text = secret if isinstance(secret, str) else secret.decode()
        return Secret(text) if text and not SECRET_REFERENCE.search(text) else text
    if isinstance(plain, dict):
        beside = typed if isinstance(typed, Mapping) else {}
        return {key: mark_secrets(value, beside.get(key), (*location, key)) for key, value in plain.items()}
    if isinstance(plain, list):
        items = typed if isinstance(typed, (list, tuple)) else ()
        pairs = enumerate(itertools.zip_longest(plain, items))
        return [mark_secrets(value, item, (*location, place)) for place, (value, item) in pairs]
    return _mark_text(plain, location) if isinstance(plain, str) else plain


def _mark_text(text: str, location: Location) -> str:
    name, equals, value = text.partition("=")
    if SECRET_REFERENCE.search(text):
        return text
    if equals and value and name.isidentifier() and _NAME.search(name):
        return Secret(text, f"{name}=")
    return Secret(text) if text and _named(location) else text


def mask_secrets(value: Any, location: Location) -> Any:
    """Return a copy of a value for ``repr``, in which text under keys that suggest a secret is masked."""
    if location[:1] and location[0] in OPEN_KEYS:
        return value
    if isinstance(value, str):
        return _mark_text(value, location)
    if isinstance(value, (BaseModel, dict)):
        return {key: mask_secrets(item, (*location, key)) for key, item in dict(value).items()}
    if type(value) in (list, tuple):
        return [mask_secrets(item, (*location, place)) for place, item in enumerate(value)]
    return value
