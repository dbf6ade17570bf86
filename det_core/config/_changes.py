"""Single values that are given on the command line, as ``key.key=YAML``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from det_core.config._document import Document, refusal
from det_core.config._yaml import from_yaml


def assigned(assignments: Iterable[str], flag: str) -> dict[str, Any]:
    """The mapping that assignments alone make.

    Args:
        assignments: each as for `change`.
        flag: the option of the command line before each.

    Raises:
        ConfigError: as for `change`.
    """
    mapping: dict[str, Any] = {}
    document = Document("the command line", mapping)
    for each in assignments:
        change(document, each, flag)
    return mapping


def change(document: Document, assignment: str, flag: str) -> None:
    """Set one value of a mapping, and the mappings around it that are not there.

    Args:
        assignment: such as ``launcher.slots=2``.
        flag: the option of the command line before it.

    Raises:
        ConfigError: it is none, or something on the way is no mapping.
    """
    path, separator, text = assignment.partition("=")
    *owners, key = path.split(".")
    if not separator or not all((*owners, key)):
        raise refusal(document.file, f"{flag} {assignment}: expected KEY=VALUE, where the value is YAML")
    mapping = document.value
    for owner in owners:
        if mapping.get(owner) is None:
            mapping[owner] = {}
        mapping = mapping[owner]
        if not isinstance(mapping, dict):
            raise refusal(document.file, f"{flag} {assignment}: {owner} is {mapping!r}, and has no keys; set it whole")
    mapping[key] = from_yaml(text, f"{flag} {assignment}").value
    place = (*owners, key)
    document.lines = {at: line for at, line in document.lines.items() if at[: len(place)] != place}
