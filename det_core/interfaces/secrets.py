"""Secrets among the texts of a config."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

__all__ = ["MASK", "REFERENCE_PREFIX", "Secret", "iter_texts", "mask_texts"]

MASK = "********"
"""Text that is shown instead of a secret."""

REFERENCE_PREFIX = "det-secret:"
"""Beginning of every `SECRET_REFERENCE`."""
SECRET_REFERENCE = re.compile(REFERENCE_PREFIX + "[0-9a-f]{32}")
"""Placeholder for a secret in recorded configs. `det_core.tracking.secret_files` keeps the secrets themselves."""

OPEN_KEYS = frozenset(
    ("hyperparameters", "labels", "name", "description", "entrypoint", "searcher", "project", "workspace")
)
"""Top-level keys of a config whose content never counts as secret, because all who may read it see it."""

_ASSIGNED = re.compile(
    r"(?:key|sig|signature|secret|pwd|token|(?<!\w)(?=\w*?passw)\w*)\s*=([^;&]+)",  # each word is read once
    re.I,
)
"""Parts of connection strings that may be credentials."""

_MOST_COMPARED = 1_000_000
"""Product of the number of secrets and the characters of a message above which a search for them takes seconds."""
_SHORT = 6
"""Length of texts below which they are parts of other words, too."""

Location = tuple[str | int, ...]
"""The keys and indexes that lead to a value."""


class Secret(str):
    """Secret that `ExperimentConfig.dump` found. Its ``repr`` is masked.

    Attributes:
        public: the beginning that is no secret, such as the ``NAME=`` of an environment variable.
    """

    public: str

    def __new__(cls, value: str, public: str = "") -> Secret:
        self = super().__new__(cls, value)
        self.public = public
        return self

    def __repr__(self) -> str:
        return repr(self.public + MASK)


def map_text(value: Any, change: Callable[[str], str]) -> Any:
    """Return a copy of JSON values with every text changed, except keys.

    Args:
        value: JSON-compatible values.
        change: function that returns the replacement of a text.
    """
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: map_text(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [map_text(item, change) for item in value]
    return value


def hide_secrets(value: Any) -> Any:
    """Return a copy of JSON values in which `MASK` stands for each `Secret` and each reference to one.

    Args:
        value: JSON-compatible values.
    """

    def hide(text: str) -> str:
        return text.public + MASK if isinstance(text, Secret) else SECRET_REFERENCE.sub(MASK, text)

    return map_text(value, hide)


def find_credentials(text: str) -> list[str]:
    """Return the parts of a text that may be credentials, if it is a URL or a connection string."""
    # Not by expressions, which would search a long text again from each of its colons.
    _, _, user = text.rpartition("@")[0].partition(":")
    _, _, address = text.partition("://")
    _, *query = re.split("[?#]", address, maxsplit=1)
    return [part for part in (user.removeprefix("//"), *query) if part] + _ASSIGNED.findall(text)


def mask_texts(message: str, secrets: Iterable[str]) -> str:
    """Return a message with `MASK` for each secret that it quotes, if short ones are words of their own.

    `MASK` stands for the whole message if a search for that many secrets in a message of that length takes seconds.

    Args:
        message: text of an error.
        secrets: the secrets.
    """
    known = {secret for secret in secrets if secret}
    if len(known) * len(message) > _MOST_COMPARED:
        return MASK
    quoted = {form for secret in known for form in (secret, repr(secret)[1:-1])}
    patterns = [
        re.escape(form) if len(form) >= _SHORT else rf"(?<!\w){re.escape(form)}(?!\w)"
        for form in sorted(quoted, key=len, reverse=True)
    ]
    return re.sub("|".join(patterns), MASK, message) if patterns else message


def iter_texts(value: Any, location: Location = ()) -> Iterator[tuple[Location, str]]:
    """Yield every text in JSON values, except keys, with its location.

    Args:
        value: JSON-compatible values.
        location: location of the value in the whole, to which those of the texts are relative.
    """
    if isinstance(value, str):
        yield location, value
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from iter_texts(item, (*location, key))


def iter_references(value: Any, location: Location = ()) -> Iterator[tuple[Location, str]]:
    """Yield every `SECRET_REFERENCE` in JSON values, except keys, with the location of its text.

    Args:
        value: JSON-compatible values.
        location: location of the value, as for `iter_texts`.
    """
    for place, text in iter_texts(value, location):
        for reference in SECRET_REFERENCE.findall(text):
            yield place, reference
