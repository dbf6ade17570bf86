"""Choice of the modules of a model that FSDP gathers and frees separately."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator

from torch import nn

_MANY = 1_000_000
"""Minimum number of parameters of a block for which a separate exchange pays off."""
_WITHOUT_FORWARD = (nn.ModuleList, nn.ModuleDict)


def choose_fsdp_units(model: nn.Module, names: Collection[str]) -> list[nn.Module]:
    """Return the model's units in the probable order of computation, followed by the model itself.

    Args:
        model: model to divide.
        names: names of the classes whose modules are units. If empty, the units are the blocks with at least a million
            parameters in each ``nn.ModuleList``, or in each ``nn.Sequential`` if the model has no ``nn.ModuleList``.
    """
    modules = dict.fromkeys(_postorder(model))
    chosen = {module for module in modules if type(module).__name__ in names} if names else _blocks([*modules, model])
    return [module for module in modules if module in chosen and not _shares(module, model)] + [model]


def _postorder(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        yield from _postorder(child)
        yield child


def _blocks(modules: Collection[nn.Module]) -> set[nn.Module]:
    kind = nn.ModuleList if any(isinstance(module, nn.ModuleList) for module in modules) else nn.Sequential
    blocks = {child for module in modules if isinstance(module, kind) for child in module.children()}
    return {block for block in blocks if _size(block) >= _MANY and not isinstance(block, _WITHOUT_FORWARD)}


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _shares(unit: nn.Module, model: nn.Module) -> bool:
    """Return whether a module outside of the unit shares one of its parameters.

    Sharding such a unit would make the shared parameter two separate ones.
    """
    owners = defaultdict(set)
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            owners[parameter].add(module)
    inside = set(unit.modules())
    return any(not owners[parameter] <= inside for parameter in unit.parameters())
