"""Config values given on the command line as ``key.key=YAML``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from det_core.config._document import Document, config_error
from det_core.config._secrets import is_secret, mask_secrets
from det_core.config._yaml import parse_yaml
from det_core.interfaces.secrets import MASK, Secret, iter_texts


def parse_assignments(assignments: Iterable[str], flag: str) -> dict[str, Any]:
    """Return a new mapping that contains only the assigned values.

    Args:
        assignments: texts such as ``launcher.slots=2``.
        flag: the command-line option that takes them, for error messages.

    Raises:
        ConfigError: one of the texts is not an assignment, or a key lies inside a value that is not a mapping.
    """
    mapping: dict[str, Any] = {}
    document = Document("the command line", mapping)
    for each in assignments:
        apply_assignment(document, each, flag)
    return mapping


def note_changes(source: str, changes: Iterable[str], config: Mapping[str, Any]) -> str:
    """Return the text of a config below comments with its changes, whose secrets are masked.

    Args:
        source: the text.
        changes: changes of the config, each as ``KEY=VALUE``.
        config: the changed config, as `ExperimentConfig.dump` returns it.
    """
    secrets = {text for _, text in iter_texts(config) if isinstance(text, Secret)}
    comments = []
    for change in changes:
        value = mask_secrets(parse_assignments([change], "--config"), ())
        has_secret = any(isinstance(text, Secret) or text in secrets for _, text in iter_texts(value))
        shown = f"{change.partition('=')[0]}={MASK}" if has_secret else change
        comments += [f"# {line}\n" for line in f"--config {shown}".splitlines()]
    return "".join(comments) + source


def apply_assignment(document: Document, assignment: str, flag: str) -> None:
    """Set one value of a document, and create the mappings around it where they are missing.

    Args:
        document: the document, whose value is a mapping.
        assignment: text such as ``launcher.slots=2``.
        flag: the command-line option that takes it, for error messages.

    Raises:
        ConfigError: the text is not an assignment, or the key lies inside a value that is not a mapping.
    """
    path, separator, text = assignment.partition("=")
    *owners, key = path.split(".")
    if not separator or not all((*owners, key)):
        raise config_error(document.file, f"{flag} {assignment}: expected KEY=VALUE, where the value is YAML")
    shown = f"{flag} {path}={MASK if is_secret((*owners, key)) else text}"
    mapping = document.value
    for owner in owners:
        if mapping.get(owner) is None:
            mapping[owner] = {}
        mapping = mapping[owner]
        if not isinstance(mapping, dict):
            raise config_error(document.file, f"{shown}: {owner} is no mapping, so it has no keys; set it as a whole")
    mapping[key] = parse_yaml(text, shown).value
    place = (*owners, key)
    document.lines = {at: line for at, line in document.lines.items() if at[: len(place)] != place}
