"""The content of a config, with what is needed to point at a place in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

from det_core.errors import ConfigError, Problem

Location = tuple[str | int, ...]
"""Where a value stands: mapping keys and list indices from the root."""

MAX_BYTES = 1 << 20


@dataclass
class Document:
    """Plain JSON values and the line on which each stands; ``problems`` do not keep the rest from being checked."""

    file: str
    value: Any = None
    lines: dict[Location, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def problem(self, location: Location, message: str) -> Problem:
        """A problem at the line of the value, or of the nearest value around it."""
        around = (location[:size] for size in range(len(location), -1, -1))
        line = next((self.lines[place] for place in around if place in self.lines), None)
        return Problem(self.file, line, format_location(location), message)

    def rename(self, owner: Location, old: str, new: str) -> None:
        """Rename a key of the mapping at ``owner``; what is below keeps its lines."""
        mapping = self.value
        for part in owner:
            mapping = mapping[part]
        mapping[new] = mapping.pop(old)
        depth = len(owner)
        moved = {place: line for place, line in self.lines.items() if place[: depth + 1] == (*owner, old)}
        self.lines |= {(*owner, new, *place[depth + 1 :]): line for place, line in moved.items()}


def format_location(location: Location) -> str:
    """``("bind_mounts", 0, "host_path")`` -> ``bind_mounts[0].host_path``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).removeprefix(".")


def read_text(path: Path) -> str:
    """The text of a config file.

    Raises:
        ConfigError: it cannot be read, is too big to be a config, or is no UTF-8 text.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise refusal(path, "no such file; expected an experiment config; check the path") from None
    except IsADirectoryError:
        raise refusal(path, "this is a directory; expected a YAML file; name the file in it") from None
    except OSError as error:
        raise refusal(path, f"cannot read the file ({error.strerror}); check its permissions") from None
    if len(content) > MAX_BYTES:
        raise refusal(path, f"the file has more than {MAX_BYTES} bytes; expected an experiment config; check the path")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise refusal(path, "the file is not UTF-8 text; expected YAML; save it as UTF-8", line) from None


def from_mapping(source: Mapping[str, Any], file: str) -> Document:
    """A document of values that someone else has read, copied and made plain.

    Raises:
        ConfigError: a value has no form in JSON.
    """
    try:
        return Document(file, to_jsonable_python(source))
    except (PydanticSerializationError, ValueError) as error:
        raise refusal(file, f"{error}; expected plain values: text, numbers, lists and mappings") from None


def refusal(file: Path | str, message: str, line: int | None = None) -> ConfigError:
    return ConfigError(Problem(str(file), line, "", message))
