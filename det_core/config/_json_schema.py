"""JSON schema of the experiment config, for editors."""

from __future__ import annotations

from typing import Any

from det_core.config._experiment import ExperimentConfig
from det_core.config._plugin_blocks import PLUGIN_BLOCKS, PluginBlock
from det_core.errors import PluginError
from det_core.plugins import plugin_registry


def config_schema() -> dict[str, Any]:
    """Return the JSON schema. Each block that selects a plugin has one variant per installed plugin."""
    schema = ExperimentConfig.model_json_schema()
    definitions = schema["$defs"]
    for block in PLUGIN_BLOCKS:
        core = definitions[block.__name__]
        names: list[str | None] = [*plugin_registry().names(block.kind)]
        if block.model_fields[block.tag].default is None:
            names.append(None)
        variants = {f"{block.kind}.{name}": _variant(block, core, name) for name in names}
        definitions |= variants
        definitions[block.__name__] = {
            "description": core["description"],
            "oneOf": [{"$ref": f"#/$defs/{variant}"} for variant in variants],
        }
    del definitions["BaseModel"]  # type of the options while no plugin is chosen
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _variant(block: type[PluginBlock], core: dict[str, Any], name: str | None) -> dict[str, Any]:
    own = _options_schema(block, name)
    common = {key: value for key, value in core["properties"].items() if key != "options"}
    # Users may omit the name of the default plugin only.
    tag = [] if block.model_fields[block.tag].default == name else [block.tag]
    required = {*core["required"], *own.get("required", ())} - {"options", block.tag}
    return {
        "additionalProperties": False,
        **own,
        "type": "object",
        "properties": {**common, block.tag: {"const": name}, **own.get("properties", {})},
        "required": [*tag, *sorted(required)],
    }


def _options_schema(block: type[PluginBlock], name: str | None) -> dict[str, Any]:
    place = f"#/$defs/{block.kind}.{name}/$defs/{{model}}"
    try:
        return block.options_model(name).model_json_schema(ref_template=place)
    except PluginError:
        return {"additionalProperties": True}  # the registry has warned about the plugin already
