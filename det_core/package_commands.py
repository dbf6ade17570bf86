"""Commands that install distributions where det is installed, for hints in errors.

``pip install`` is wrong in a tool environment of pipx or uv, in an environment without pip, and if the first pip on the
PATH belongs to another Python. In conda environments it is right, because det has no conda packages.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

__all__ = ["package_command"]

_Change = Literal["install", "upgrade", "reinstall", "uninstall"]
"""Change of an environment."""

_PIP = {
    "install": "{tool} install{python} {them}",
    "upgrade": "{tool} install{python} -U {them}",
    "reinstall": "{tool} install{python} --force-reinstall --no-deps {them}",
    "uninstall": "{tool} uninstall{python} {them}",
}
_PIPX = {
    "install": "pipx inject {tool} {them}",
    "upgrade": "pipx upgrade --include-injected {tool}",
    "reinstall": "pipx inject --force {tool} {them}",
    "uninstall": "pipx uninject {tool} {them}",
}
_UV_TOOL = {
    "install": "uv tool install {tool} --with {them}",
    "upgrade": "uv tool upgrade {tool}",
    "reinstall": "uv tool upgrade --reinstall {tool}",
    "uninstall": "uv pip uninstall{python} {them}",
}
_UV_REQUIREMENT = re.compile(r'\{ name = "([^"]+)"(?:, extras = \[([^]]*)\])?')
_REQUIREMENT = re.compile(r"det-([a-z0-9-]+)(\[[a-z,-]+\])?")


def package_command(action: _Change, *requirements: str) -> str:
    """Return the shell command that changes the environment of this process.

    Args:
        action: change of the environment. ``upgrade`` may upgrade more than the requirements.
        requirements: distributions as in ``det-core[plot]``, which are quoted where a shell needs it.
    """
    templates, tool, python = _installer()
    them = [_from_source(one, templates) if action == "install" else shlex.quote(one) for one in requirements]
    return templates[action].format(tool=tool, python=python, them=" ".join(them)).rstrip()


def adapt_install_command(text: str) -> str:
    """Replace each ``pip install`` in a text by the command that installs into the environment of this process."""
    return text.replace("pip install", package_command("install"))


def _installer() -> tuple[Mapping[str, str], str, str]:
    """Return the templates of the tool that manages this environment, and their fields ``tool`` and ``python``."""
    prefix, python = Path(sys.prefix), f" --python {shlex.quote(sys.executable)}"
    if (prefix / "pipx_metadata.json").exists():
        return _PIPX, shlex.quote(prefix.name), ""
    receipt = prefix / "uv-receipt.toml"
    if receipt.exists():
        return _UV_TOOL, _uv_requirements(receipt.read_text(encoding="utf-8")), python
    if (_metadata_file("INSTALLER") or "").strip() == "uv":
        return _PIP, "uv pip", "" if os.environ.get("VIRTUAL_ENV") == sys.prefix else python
    first = shutil.which("pip")
    here = first is not None and Path(first).parent == Path(sys.executable).parent
    return _PIP, "pip" if here else f"{shlex.quote(sys.executable)} -m pip", ""


def _uv_requirements(receipt: str) -> str:
    """Return what a tool was installed from, because ``uv tool install`` removes everything that is not named again."""
    found = [
        shlex.quote(f"{name}[{extras.replace(' ', '').replace(chr(34), '')}]" if extras else name)
        for name, extras in _UV_REQUIREMENT.findall(receipt.partition("entrypoints")[0])
    ]
    return " --with ".join(found)


def _from_source(requirement: str, templates: Mapping[str, str]) -> str:
    """Return the arguments for a requirement, which are a directory if the source tree of det-core has one for it."""
    origin = json.loads(_metadata_file("direct_url.json") or "{}")
    match = _REQUIREMENT.fullmatch(requirement)
    if match is None or "dir_info" not in origin:
        return shlex.quote(requirement)
    directory = Path(unquote(urlsplit(origin["url"]).path), "plugins", match[1].replace("-", "_"))
    if not directory.is_dir():
        return shlex.quote(requirement)
    editable = origin["dir_info"].get("editable") and templates is not _UV_TOOL
    return ("-e " if editable else "") + shlex.quote(f"{directory}{match[2] or ''}")


def _metadata_file(name: str) -> str | None:
    from importlib import metadata  # takes longer than all else here, and only errors need it

    found = next(iter(metadata.distributions(name="det-core")), None)
    return found.read_text(name) if found else None
