"""What in a config is a secret, and how it is kept from eyes that need not see it.

A secret is what a plugin's model declares as one (`pydantic.SecretStr`), and text under a key that is named like
one. Hyperparameters, labels and the searcher's options have no secrets: they are the record's subject.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from typing import Any

import yaml
from pydantic import BaseModel, SecretBytes, SecretStr

from det_core.config._yaml import from_yaml
from det_core.errors import ConfigError
from det_core.interfaces.secrets import SECRET_REFERENCE, Location, Secret, map_text

_NAME = re.compile(
    r"(access|account|api|private)_?key|secret|passw|connection_string|credential|(^|_)auth(_|$)|token$", re.I
)
_OPEN = {"hyperparameters", "labels", "name", "description", "entrypoint", "searcher"}
"""Top-level keys below which a name means nothing."""
_VARIABLES = "environment_variables"


def is_secret(location: Location) -> bool:
    """Whether a message about this value must not repeat it."""
    return _VARIABLES in location or _named(location)


def _named(location: Location) -> bool:
    """Whether one of the keys that lead to a value is named like a secret."""
    return any(isinstance(part, str) and _NAME.search(part) for part in location)


def mark(plain: Any, typed: Any, location: Location = ()) -> Any:
    """A copy in which every secret is a `Secret`.

    Args:
        plain: JSON values; pydantic has masked what it knows to be secret.
        typed: the same with Python values.
        location: where it stands in the config.
    """
    if location[:1] and location[0] in _OPEN:
        return plain
    if isinstance(typed, (SecretStr, SecretBytes)):
        secret = typed.get_secret_value()
        text = secret if isinstance(secret, str) else secret.decode()
        return Secret(text) if text and not SECRET_REFERENCE.search(text) else text
    if isinstance(plain, dict):
        beside = typed if isinstance(typed, Mapping) else {}
        return {key: mark(value, beside.get(key), (*location, key)) for key, value in plain.items()}
    if isinstance(plain, list):
        items = typed if isinstance(typed, (list, tuple)) else ()
        pairs = enumerate(itertools.zip_longest(plain, items))
        return [mark(value, item, (*location, place)) for place, (value, item) in pairs]
    return _mark_text(plain, location) if isinstance(plain, str) else plain


def _mark_text(text: str, location: Location) -> str:
    name, equals, value = text.partition("=")
    if SECRET_REFERENCE.search(text):
        return text
    if equals and value and name.isidentifier() and _NAME.search(name):
        return Secret(text, f"{name}=")
    return Secret(text) if text and _named(location) else text


def replace_texts(source: str, known: Mapping[str, str]) -> str:
    """YAML or JSON in which some texts, wherever they stand, are replaced; comments are lost, too.

    What has none of them, or is no YAML, stays as it is.
    """
    try:
        value = from_yaml(source, "").value if known else None
    except ConfigError:
        return source
    changed = map_text(value, lambda text: known.get(text, text))
    if changed == value:
        return source
    is_json = source.lstrip().startswith("{")
    return json.dumps(changed, indent=2) if is_json else yaml.safe_dump(changed, sort_keys=False, allow_unicode=True)


def shown(value: Any, location: Location) -> Any:
    """A value for ``repr``, without what is named like a secret."""
    if location[:1] and location[0] in _OPEN:
        return value
    if isinstance(value, str):
        return _mark_text(value, location)
    if isinstance(value, (BaseModel, dict)):
        return {key: shown(item, (*location, key)) for key, item in dict(value).items()}
    if type(value) in (list, tuple):
        return [shown(item, (*location, place)) for place, item in enumerate(value)]
    return value
