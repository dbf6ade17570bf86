"""Old name of `det_testing`, the compliance suites for plugins, which ``det-core[testing]`` installs.

Each module below it is the same object as the one of `det_testing` with the same name.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

from det_core.package_commands import package_command


class _OldNames:
    """Finder and loader of this module's submodules."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname.startswith(f"{__name__}.") else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """Return None, for the default creation of a module."""

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = import_module(module.__name__.replace(__name__, "det_testing", 1))


try:
    _NEW = import_module("det_testing")
except ModuleNotFoundError as error:
    if error.name != "det_testing":
        raise
    command = package_command("install", "det-core[testing]")
    raise ModuleNotFoundError(
        f"{__name__} is det_testing now, which is not installed; type: {command}", name=error.name
    ) from error

campaign_seeds, is_soak = _NEW.campaign_seeds, _NEW.is_soak
__path__: list[str] = []  # makes it a package
sys.meta_path.insert(0, _OldNames())  # before the finder of files, which would import modules of packages twice
