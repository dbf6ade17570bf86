"""What kind of Python session this is."""

from __future__ import annotations

import builtins
import sys


def interactive() -> bool:
    """Whether the classes of ``__main__`` are of a notebook or a prompt, so that no file has them."""
    return getattr(builtins, "__IPYTHON__", False) or not getattr(sys.modules["__main__"], "__file__", None)


def in_notebook() -> bool:
    """Whether what is shown goes into the cells of a notebook."""
    return "ipykernel" in sys.modules and getattr(builtins, "__IPYTHON__", False)
