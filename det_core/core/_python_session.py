"""Kind of the running Python session."""

from __future__ import annotations

import builtins
import sys


def is_interactive() -> bool:
    """Return whether classes of ``__main__`` come from a notebook or a prompt, so that no file contains them."""
    return getattr(builtins, "__IPYTHON__", False) or not getattr(sys.modules["__main__"], "__file__", None)


def in_notebook() -> bool:
    """Return whether output goes to the cells of a notebook."""
    return "ipykernel" in sys.modules and getattr(builtins, "__IPYTHON__", False)
