"""Keys of the config without an effect of their own, which a launcher may claim."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from pydantic import BaseModel

from det_core.config._block import IGNORED, Block
from det_core.errors import PluginError
from det_core.plugins import plugin_registry

if TYPE_CHECKING:
    from det_core.specs import LauncherSpec

Path = tuple[str, ...]
"""Names of the blocks that lead to a key, and of the key."""


def find_claimed_model(launcher: str, config: type[Block]) -> tuple[type[BaseModel] | None, set[Path]]:
    """Return the model of the keys that a launcher claims, or None if it claims none, and their paths.

    Args:
        launcher: name of the launcher.
        config: model of the whole config.

    Raises:
        PluginError: the model cannot be imported, or has a key that no launcher can claim.
    """
    plugins = plugin_registry()
    spec = cast("LauncherSpec", plugins.find("launcher", launcher))
    model = plugins.claimed_model(spec)
    claimed = dict(_iter_claimed(model, config)) if model else {}
    if wrong := [".".join(path) for path, is_claimable in claimed.items() if not is_claimable]:
        raise PluginError(
            f"plugin {plugins.owner(spec)}: {spec.claims!r} claims {', '.join(wrong)}; expected only keys that have no "
            "effect of their own, such as environment.image"
        )
    return model, set(claimed)


def iter_ignored_keys(block: Block, prefix: Path = ()) -> Iterator[Path]:
    """Yield the keys without an effect of their own that differ from their default."""
    for name, field in type(block).model_fields.items():
        value = getattr(block, name)
        if field.description == IGNORED:
            if value != field.get_default(call_default_factory=True):
                yield (*prefix, name)
        elif isinstance(value, Block):
            yield from iter_ignored_keys(value, (*prefix, name))


def _iter_claimed(model: type[BaseModel], config: type[BaseModel], prefix: Path = ()) -> Iterator[tuple[Path, bool]]:
    """Yield the keys of a model of claimed keys, and whether a launcher can claim them."""
    for name, field in model.model_fields.items():
        known = config.model_fields.get(name)
        ours, theirs = known and known.annotation, field.annotation
        if known and known.description == IGNORED:
            yield (*prefix, name), True
        elif _is_model(ours) and _is_model(theirs):
            yield from _iter_claimed(theirs, ours, (*prefix, name))
        else:
            yield (*prefix, name), False


def _is_model(annotation: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
