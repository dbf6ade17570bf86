"""Reference of the experiment config, made of its JSON schema: a section per block, and an entry per key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from det_core.config._plugin_blocks import PLUGIN_BLOCKS

_BOUNDS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
_NAMES = {"string": "text", "boolean": "true or false", "object": "mapping", "number": "number", "integer": "integer"}
_FORMATS = {"path": "path", "password": "secret text"}
_UNITS = ("batches", "records", "epochs")

Schema = Mapping[str, Any]


@dataclass(frozen=True)
class Key:
    """Key of the config, which is ``place.name``."""

    place: tuple[str, ...]
    name: str
    schema: Schema
    required: bool
    beside: Mapping[str, Any] = field(default_factory=dict)
    """Keys that select the variant of the block that the key belongs to."""

    @property
    def path(self) -> str:
        """Dotted path of the key."""
        return ".".join((*self.place, self.name))


@dataclass
class Section:
    """Block of the config, or one of its variants."""

    title: str
    text: str
    keys: list[Key] = field(default_factory=list)
    parts: list[Section] = field(default_factory=list)


class SchemaReader:
    """Reader of the sections in the JSON schema of the config."""

    def __init__(self, schema: Schema) -> None:
        self._root = schema
        self._plugins = {block.__name__: block for block in PLUGIN_BLOCKS}

    def sections(self) -> list[Section]:
        """Return the sections of the reference, that of the top-level keys first."""
        top, blocks = Section("Top-level keys", ""), []
        for key in self._keys(self._root, ()):
            inner = self._target(key.schema)
            if key.name == "observers":
                blocks.append(self._observers(key))
            elif key.name == "hyperparameters":
                blocks.append(self._hyperparameters(key))
            elif name := self._plugin_block(key.schema):
                blocks.append(self._plugin_section(key, name))
            elif "properties" in inner and not is_ignored(key):
                blocks.append(self._block_section(key, inner))
            else:
                top.keys.append(key)
        return [top, *blocks]

    def follow(self, schema: Schema) -> Schema:
        """Return the schema that a reference leads to."""
        while "$ref" in schema:
            target: Any = self._root
            for part in schema["$ref"].removeprefix("#/").split("/"):
                target = target[part]
            schema = target
        return schema

    def _target(self, schema: Schema) -> Schema:
        """Return the block that a key contains, if it contains one."""
        options = [self.follow(option) for option in schema.get("anyOf", (schema,))]
        found = next((option for option in options if "properties" in option and not is_length(option)), {})
        nested = [option for option in options if "anyOf" in option and "$ref" in schema]
        return found or (self._target(nested[0]) if nested else {})

    def _plugin_block(self, schema: Schema) -> str | None:
        names = (option.get("$ref", "").rpartition("/")[2] for option in schema.get("anyOf", (schema,)))
        return next((name for name in names if name in self._plugins), None)

    def _keys(self, schema: Schema, place: tuple[str, ...]) -> Iterator[Key]:
        for name, value in schema.get("properties", {}).items():
            yield Key(place, name, value, name in schema.get("required", ()))

    def _leaves(self, schema: Schema, place: tuple[str, ...]) -> Iterator[Key]:
        """Yield the keys of a block, and those of its inner blocks instead of these."""
        for key in self._keys(schema, place):
            inner = self._target(key.schema)
            yield from self._leaves(inner, (*place, key.name)) if inner and not is_ignored(key) else (key,)

    def _block_section(self, key: Key, block: Schema) -> Section:
        return Section(key.name, key.schema["description"], list(self._leaves(block, (key.name,))))

    def _plugin_section(self, key: Key, name: str) -> Section:
        block = self._plugins[name]
        variants = {
            part["$ref"].rpartition("/")[2].partition(".")[2]: self.follow(part)
            for part in self.follow({"$ref": f"#/$defs/{name}"})["oneOf"]
        }
        common = block.common_keys()
        first = next(iter(variants.values()))
        names = ", ".join(f"`{variant}`" for variant in variants if variant != "None")
        section = Section(key.name, f"{key.schema['description']} `{key.name}.{block.tag}` is one of {names}.")
        section.keys = [own for own in self._leaves(first, (key.name,)) if own.name in common and own.name != block.tag]
        for variant, schema in variants.items():
            keys = [own for own in self._leaves(schema, (key.name,)) if own.place[1:] or own.name not in common]
            keys = [replace(own, beside={block.tag: variant}) for own in keys]
            if keys:
                section.parts.append(Section(f"{key.name} with {block.tag}: {variant}", schema["description"], keys))
        return section

    def _observers(self, key: Key) -> Section:
        section = Section(key.name, key.schema["description"])
        for name, part in key.schema["properties"].items():
            schema = self.follow(part)
            keys = list(self._leaves(schema, (key.name, name)))
            section.parts.append(Section(f"{key.name}: {name}", schema["description"], keys))
        return section

    def _hyperparameters(self, key: Key) -> Section:
        section = Section(key.name, "", [key])
        choices = self.follow({"$ref": "#/$defs/Hyperparameter"})["oneOf"][0]["discriminator"]["mapping"]
        for kind, reference in choices.items():
            schema = self.follow({"$ref": reference})
            keys = [own for own in self._keys(schema, (key.name, "NAME")) if own.name != "type"]
            keys = [replace(own, beside={"type": kind}) for own in keys]
            section.parts.append(Section(f"{key.name} of type: {kind}", schema["description"], keys))
        return section

    def type_text(self, schema: Schema) -> str:
        """Return the type of a value in words."""
        schema = self.follow(schema)
        options = schema.get("anyOf") or schema.get("oneOf")
        if options:
            if any(is_length(option) for option in options):
                return "[length](#lengths)"
            kinds = (self.type_text(option) for option in options if option.get("type") != "null")
            return " or ".join(dict.fromkeys(kinds))
        if "enum" in schema:
            return "one of " + ", ".join(f"`{value}`" for value in schema["enum"])
        if schema.get("type") == "array":
            word, _, limits = self.type_text(schema.get("items", {})).partition(" ")
            return f"list of {word}s {limits}".rstrip()
        name = _FORMATS.get(schema.get("format", ""), _NAMES.get(schema.get("type", ""), "value of any type"))
        limits = " and ".join(f"{sign} {schema[bound]}" for bound, sign in _BOUNDS.items() if bound in schema)
        return f"{name} {limits}".rstrip()

    def unit(self, schema: Schema) -> str | None:
        """Return the unit of a value, or None if it has none."""
        if any(is_length(option) for option in schema.get("anyOf", ())):
            return "batches, records or epochs"
        unit: str | None = schema.get("unit")
        return unit

    def examples(self, schema: Schema) -> list[Any]:
        """Return example values, which need not be declared for booleans and choices."""
        if "examples" in schema:
            return list(schema["examples"])
        options = [self.follow(option) for option in schema.get("anyOf", (schema,))]
        choices = [value for option in options for value in option.get("enum", ())]
        choices += [True, False] if options[0].get("type") == "boolean" else []
        return [value for value in choices if value != schema.get("default")][:1]


def is_length(schema: Schema) -> bool:
    """Return whether a schema is that of a length in one unit."""
    return any(schema.get("required") == [unit] for unit in _UNITS)


def is_ignored(key: Key) -> bool:
    """Return whether a key has no effect."""
    return bool(key.schema.get("deprecated"))


def render_reference(schema: Schema) -> str:
    """Return the sections of all keys as Markdown."""
    reader = SchemaReader(schema)
    sections = reader.sections()
    lines = [line for section in sections for line in _section(reader, section, 2)]
    ignored = [key for section in _all(sections) for key in section.keys if is_ignored(key)]
    lines += ["## Ignored keys", "", "Old configs may contain these keys, which have no effect.", ""]
    lines += ["| key | meaning in old releases |", "|---|---|"]
    lines += [f"| `{key.path}` | {key.schema['description'].partition(' Accepted for')[0]} |" for key in ignored]
    return "\n".join(lines) + "\n"


def _all(sections: list[Section]) -> Iterator[Section]:
    for section in sections:
        yield section
        yield from _all(section.parts)


def _section(reader: SchemaReader, section: Section, level: int) -> Iterator[str]:
    yield from (f"{'#' * level} {section.title}", "")
    if section.text:
        yield from (section.text, "")
    for key in section.keys:
        if not is_ignored(key):
            yield from _entry(reader, key, level + 1)
    for part in section.parts:
        yield from _section(reader, part, level + 1)


def _entry(reader: SchemaReader, key: Key, level: int) -> Iterator[str]:
    yield from (f"{'#' * level} `{key.path}`", "", key.schema["description"], "")
    unit = reader.unit(key.schema)
    yield f"- Type: {reader.type_text(key.schema)}"
    if unit:
        yield f"- Unit: {unit}"
    yield f"- Default: {_default(key)}"
    blocks = [_example(key, value) for value in reader.examples(key.schema)]
    yield from ("", "```yaml", "# or\n".join(blocks).rstrip(), "```", "")


def _default(key: Key) -> str:
    if key.required:
        return "none, the key is required"
    if "default" not in key.schema:
        types = {option.get("type") for option in key.schema.get("anyOf", (key.schema,))}
        return "empty" if types & {"object", "array"} else "see above"
    value = key.schema["default"]
    return "none" if value is None else f"`{yaml.safe_dump(value, default_flow_style=True).partition(chr(10))[0]}`"


def _example(key: Key, value: Any) -> str:
    nested: Any = {key.name: value}
    for depth in range(len(key.place), 0, -1):
        # The keys that select a variant stand at the top of its block.
        beside = key.beside if depth == (2 if "NAME" in key.place else 1) else {}
        name = key.place[depth - 1]
        nested = {"lr" if name == "NAME" else name: {**beside, **nested}}
    return yaml.safe_dump(nested, default_flow_style=None if _depth(value) else False, sort_keys=False)


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max((_depth(part) for part in inner), default=0)
