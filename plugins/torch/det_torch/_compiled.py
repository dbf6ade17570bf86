"""Access to the modules inside the wrappers of ``torch.compile``, under their original names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import nn

_INSIDE = "_orig_mod"
"""Name of the wrapped module in its wrapper. A check of the wrapper's class would import the compiler."""


def unwrap_compiled(model: nn.Module) -> nn.Module:
    """Return the module inside a compiled model. Other models, and those compiled in place, are returned unchanged."""
    return model._modules.get(_INSIDE) or model


@contextmanager
def uncompiled_models(models: Sequence[nn.Module]) -> Iterator[list[nn.Module]]:
    """Yield the bare models, whose compiled submodules are unwrapped while the block runs.

    The parameters are the same objects as before. Inside the block, names in ``state_dict`` and ``load_state_dict``
    have no ``_orig_mod.`` prefix, so that checkpoints do not depend on which modules are compiled.
    """
    inside = [unwrap_compiled(model) for model in models]
    wrapped = [
        (parent, name, child)
        for model in inside
        for parent in model.modules()
        for name, child in parent._modules.items()
        if child is not None and _INSIDE in child._modules
    ]
    for parent, name, child in wrapped:
        parent._modules[name] = unwrap_compiled(child)
    try:
        yield inside
    finally:
        for parent, name, child in wrapped:
            parent._modules[name] = child
