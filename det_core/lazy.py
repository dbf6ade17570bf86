"""Public names that are imported on first use (PEP 562)."""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing would be most of this module's cost

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def lazy_exports(
    namespace: dict[str, Any], modules: dict[str, str], *, first: str = ""
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a package.

    Args:
        namespace: ``globals()`` of the package, including ``__all__``.
        modules: public names mapped to the module that defines the name, or that the name stands for.
        first: module to import before any of them.
    """
    package = namespace["__name__"]

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module

        if first:
            import_module(first)
        module = import_module(modules[name])
        value = module if module.__name__ == f"{package}.{name}" else getattr(module, name)
        namespace[name] = value
        return value

    return get, lambda: list(namespace["__all__"])
