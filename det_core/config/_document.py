"""Content of a config file, with the line number of each value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

from det_core.errors import ConfigError, Problem
from det_core.json_values import dump_json_value

Location = tuple[str | int, ...]
"""Path of a value in a document, as mapping keys and list indices from the root."""

MAX_BYTES = 1 << 20
"""Maximum size of a config file in bytes, and of a YAML text in characters."""


@dataclass
class Document:
    """JSON-compatible values and the line number of each.

    Attributes:
        file: name of the file, for error messages.
        value: the content.
        lines: line number of each value, >= 1. Values from the command line have none.
        problems: problems that were found while reading. The rest of the document can still be checked.
    """

    file: str
    value: Any = None
    lines: dict[Location, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def problem(self, location: Location, message: str) -> Problem:
        """Return a problem at the line of the value, or at the line of the nearest enclosing value."""
        around = (location[:size] for size in range(len(location), -1, -1))
        line = next((self.lines[place] for place in around if place in self.lines), None)
        return Problem(self.file, line, format_location(location), message)

    def value_at(self, location: Location) -> Any:
        """Return the value at a location, which must exist."""
        return reduce(getitem, location, self.value)

    def rename(self, owner: Location, old: str, new: str) -> None:
        """Rename a key of the mapping at ``owner``. Its value and all values inside keep their line numbers."""
        mapping = self.value_at(owner)
        mapping[new] = mapping.pop(old)
        depth = len(owner)
        moved = {place: line for place, line in self.lines.items() if place[: depth + 1] == (*owner, old)}
        self.lines |= {(*owner, new, *place[depth + 1 :]): line for place, line in moved.items()}


def format_location(location: Location) -> str:
    """Format a location, such as ``bind_mounts[0].host_path`` for ``("bind_mounts", 0, "host_path")``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).removeprefix(".")


def read_text(path: Path) -> str:
    """Return the text of a config file.

    Raises:
        ConfigError: the file cannot be read, is larger than `MAX_BYTES`, or is not UTF-8 text.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise config_error(path, "no such file; expected an experiment config; check the path") from None
    except IsADirectoryError:
        raise config_error(path, "this is a directory; expected a YAML file; name the file in it") from None
    except OSError as error:
        raise config_error(path, f"cannot read the file ({error.strerror}); check its permissions") from None
    if len(content) > MAX_BYTES:
        raise config_error(
            path, f"the file has more than {MAX_BYTES} bytes; expected an experiment config; check the path"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise config_error(path, "the file is not UTF-8 text; expected YAML; save it as UTF-8", line) from None


def document_from_mapping(source: Mapping[str, Any], file: str) -> Document:
    """Return a document with a JSON-compatible copy of a mapping. It has no line numbers.

    Args:
        source: the mapping.
        file: name of the document in error messages.

    Raises:
        ConfigError: a value cannot be converted to JSON, or the JSON text is larger than `MAX_BYTES`.
    """
    try:
        document = Document(file, to_jsonable_python(source))
    except UnicodeEncodeError as error:
        raise config_error(file, f"{error.object!r:.100} has half of a surrogate pair; remove it") from None
    except (PydanticSerializationError, ValueError) as error:
        raise config_error(file, f"{error}; expected plain values: text, numbers, lists and mappings") from None
    if len(dump_json_value(document.value)) > MAX_BYTES:
        raise config_error(file, f"the config has more than {MAX_BYTES} characters as JSON; put data into files")
    return document


def config_error(file: Path | str, message: str, line: int | None = None) -> ConfigError:
    """Return an error about a file as a whole, or about one of its lines."""
    return ConfigError(Problem(str(file), line, "", message))
