"""Single values of a config that are given on the command line."""

from __future__ import annotations

from det_core.config._document import Document, refusal
from det_core.config._yaml import from_yaml


def change(document: Document, assignment: str) -> None:
    """Set one value of a mapping, and the mappings around it that are not there.

    Args:
        assignment: ``key.key=YAML``, such as ``searcher.max_length.batches=100``.

    Raises:
        ConfigError: it is none, or something on the way is no mapping.
    """
    path, separator, text = assignment.partition("=")
    *owners, key = path.split(".")
    if not separator or not all((*owners, key)):
        raise refusal(document.file, f"--config {assignment}: expected KEY=VALUE, such as launcher.slots=2")
    mapping = document.value
    for owner in owners:
        if mapping.get(owner) is None:
            mapping[owner] = {}
        mapping = mapping[owner]
        if not isinstance(mapping, dict):
            raise refusal(
                document.file, f"--config {assignment}: {owner} is {mapping!r}, and has no keys; set it whole"
            )
    mapping[key] = from_yaml(text, f"--config {assignment}").value
    place = (*owners, key)
    document.lines = {at: line for at, line in document.lines.items() if at[: len(place)] != place}
