"""The modules inside of what ``torch.compile`` returns, under the names that their own code gives them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import nn

_INSIDE = "_orig_mod"
"""Where the wrapper keeps the module. The wrapper's class would tell too, but is imported with the compiler."""


def bare(model: nn.Module) -> nn.Module:
    """The module that was compiled; the model itself if it was not, or in place by ``model.compile()``."""
    return model._modules.get(_INSIDE) or model


@contextmanager
def uncompiled(models: Sequence[nn.Module]) -> Iterator[list[nn.Module]]:
    """The bare models, compiled submodules taken out of their wrappers for as long as the block runs.

    Their parameters are the same objects. ``state_dict`` and ``load_state_dict`` know no ``_orig_mod.`` here, so that
    checkpoints fit models that are compiled elsewhere, or not at all.
    """
    inside = [bare(model) for model in models]
    wrapped = [
        (parent, name, child)
        for model in inside
        for parent in model.modules()
        for name, child in parent._modules.items()
        if child is not None and _INSIDE in child._modules
    ]
    for parent, name, child in wrapped:
        parent._modules[name] = bare(child)
    try:
        yield inside
    finally:
        for parent, name, child in wrapped:
            parent._modules[name] = child
