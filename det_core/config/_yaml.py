"""YAML parser that keeps line numbers, and the dumper of what it reads.

The parser accepts JSON-compatible values only, and limits the size of the result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import yaml

from det_core.config._document import MAX_BYTES, Document, Location, config_error, format_location
from det_core.errors import ConfigError, Problem
from det_core.interfaces.secrets import map_text

MAX_VALUES = 100_000
"""Maximum number of values in a config, after aliases are expanded."""
MAX_DEPTH = 100
"""Maximum number of nested levels in a config."""

_SURPRISING = re.compile(r"[-+]?0[0-7_]+|.*:.*")
"""Pattern of YAML 1.1 numbers that users may intend as text, such as 16:9, or as another number, such as 010."""

_ZERO_FIRST = re.compile(r"[-+]?0[0-9]*[89][0-9]*$")
"""Pattern of decimal numbers with a leading zero, such as 08, which no parser reads in base 8."""

_TAG = "tag:yaml.org,2002:"


class _Loader(yaml.SafeLoader):
    """Loader that resolves scalars as most YAML parsers other than PyYAML do."""

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """Return the number that a scalar describes."""
        text = self.construct_scalar(node)
        return int(text) if _ZERO_FIRST.match(text) else super().construct_yaml_int(node)


# Dates remain text, as in JSON.
_Loader.yaml_implicit_resolvers = {
    first: [rule for rule in rules if rule[0] != _TAG + "timestamp"]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_constructor(_TAG + "int", _Loader.construct_yaml_int)


class _Dumper(yaml.SafeDumper):
    """Dumper that quotes every text that `_Loader` would read as a number."""


for _format in (_Loader, _Dumper):
    # PyYAML reads 1e-3 as text, because YAML 1.1 requires a dot and a sign. Other parsers read it as a number.
    _format.add_implicit_resolver(
        _TAG + "float", re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+$"), list("-+.0123456789")
    )
    # PyYAML reads 08 as text. YAML 1.2 and Determined AI read 8. The latter reads 1_000 as a number, as PyYAML does.
    _format.add_implicit_resolver(_TAG + "int", _ZERO_FIRST, list("-+0"))


def dump_yaml(value: Any) -> str:
    """Return a JSON-compatible value as YAML, from which `parse_yaml` reads an equal value."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def parse_yaml(text: str, file: str) -> Document:
    """Parse one YAML document.

    Args:
        text: the document.
        file: name of the document in error messages.

    Raises:
        ConfigError: the document has a syntax error or a tag, or exceeds `MAX_BYTES`, `MAX_VALUES` or `MAX_DEPTH`.
    """
    if len(text) > MAX_BYTES:
        raise config_error(file, f"the text has more than {MAX_BYTES} characters; expected an experiment config")
    document = Document(file)
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        if root is not None:
            document.value = _Builder(loader, document).build(root, ())
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        begin = f" {error.context} from line {error.context_mark.line + 1}" if error.context_mark else ""
        message = f"not valid YAML: {error.problem}{begin}; check indentation, colons and quotes"
        raise config_error(file, message, line) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise config_error(file, f"not valid YAML: {error.reason}; remove the character", line) from None
    except RecursionError:
        raise config_error(file, "the YAML is nested too deeply, or within itself; expected a few levels") from None
    return document


def replace_texts(source: str, known: Mapping[str, str]) -> str:
    """Replace texts anywhere in a YAML or JSON document. Comments are lost.

    A source without these texts, or one that is not YAML, is returned unchanged.

    Args:
        source: the document.
        known: replacements by text. Only whole scalar values are replaced.
    """
    try:
        value = parse_yaml(source, "").value if known else None
    except ConfigError:
        return source
    changed = map_text(value, lambda text: known.get(text, text))
    if changed == value:
        return source
    is_json = source.lstrip().startswith("{")
    return json.dumps(changed, indent=2) if is_json else dump_yaml(changed)


class _Builder:
    """Converter of YAML nodes to values.

    Every use of an alias creates a copy of its value, so the total number of values is limited.
    """

    _SCALARS = frozenset(_TAG + name for name in ("null", "bool", "int", "float", "str"))

    def __init__(self, loader: _Loader, document: Document) -> None:
        self._loader = loader
        self._document = document
        self._count = 0

    def build(self, node: yaml.Node, location: Location) -> Any:
        """Return the value of a node, and add the line numbers of all values in it to the document.

        Args:
            node: the node.
            location: location of the value in the document.

        Raises:
            ConfigError: the node is not JSON-compatible, or the document is too large or too deep.
        """
        self._document.lines.setdefault(location, _line(node))
        self._count += 1
        if self._count > MAX_VALUES or len(location) > MAX_DEPTH:
            limits = f"at most {MAX_VALUES} values and {MAX_DEPTH} levels"
            raise self._refusal(node, f"aliases or nesting make the config too big; expected {limits}")
        match node:
            case yaml.MappingNode(tag="tag:yaml.org,2002:map"):
                return self._mapping(node, location)
            case yaml.SequenceNode(tag="tag:yaml.org,2002:seq"):
                return [self.build(item, (*location, index)) for index, item in enumerate(node.value)]
            case yaml.ScalarNode() if node.tag in self._SCALARS:
                return self._scalar(node)
        raise self._refusal(node, f"the tag {node.tag.replace(_TAG, '!!')!r} is not allowed here; remove it")

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        try:
            value = self._loader.construct_object(node)
        except (ValueError, KeyError, IndexError, OverflowError):
            kind = node.tag.removeprefix(_TAG)
            raise self._refusal(node, f"the value cannot be read as YAML {kind}; put it in quotes") from None
        if isinstance(value, (int, float)) and _SURPRISING.fullmatch(node.value):
            raise self._refusal(
                node,
                f"{node.value} is the number {value} in YAML 1.1, which reads colons in base 60 and a leading "
                "zero in base 8; put it in quotes if it is text, or write a number such as 12 or 1.5",
            )
        return value

    def _mapping(self, node: yaml.MappingNode, location: Location) -> dict[str, Any]:
        document, result = self._document, {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise self._refusal(key_node, "a key is a list or a mapping; expected text; put it in quotes")
            place = (*location, key_node.value)
            if place in document.lines:
                message = f"the key is given twice, first on line {document.lines[place]}; remove one"
                document.problems.append(Problem(document.file, _line(key_node), format_location(place), message))
            document.lines[place] = _line(key_node)
            result[key_node.value] = self.build(value_node, place)
        return self._merge(node, result)

    def _merge(self, node: yaml.MappingNode, mapping: dict[str, Any]) -> dict[str, Any]:
        sources = mapping.pop("<<", [])
        for source in sources if isinstance(sources, list) else [sources]:
            if not isinstance(source, dict):
                raise self._refusal(node, "<< merges a value that is not a mapping; expected an alias of a mapping")
            mapping = source | mapping
        return mapping

    def _refusal(self, node: yaml.Node, message: str) -> ConfigError:
        return config_error(self._document.file, message, _line(node))


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
